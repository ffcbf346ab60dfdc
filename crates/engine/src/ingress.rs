//! Tunnels into a container. Bytes are passed on as they are; with `--faults` the HTTP requests in them are read, so
//! that each is recorded and can be made to fail. What is not HTTP is passed on even then.

use crate::calls::Plane;
use crate::engine::Engine;
use crate::faults::{Action, Cut, pause};
use crate::rewound::Rewound;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// A doubled request is kept in memory for its second delivery.
const MAX_DOUBLED_BYTES: usize = 4 << 20;

type AnyError = Box<dyn std::error::Error + Send + Sync>;
type AnyBody = BoxBody<Bytes, AnyError>;

/// Passes bytes both ways until both sides have ended.
pub async fn tunnel<T>(engine: &Arc<Engine>, container: &str, mut outside: T, mut inside: TcpStream)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if !engine.config.faults {
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
        return;
    }
    let (mut start, mut speaks_first) = (Vec::new(), [0]);
    let http = tokio::select! {
        http = begins_as_http(&mut outside, &mut start) => http,
        // A server that speaks first speaks no HTTP.
        _ = inside.peek(&mut speaks_first) => false,
    };
    let mut outside = Rewound { start: Bytes::from(start), rest: outside };
    if http {
        requests(engine.clone(), container.to_owned(), outside, inside).await;
    } else {
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    }
}

/// Whether the stream begins with a method of HTTP. Reads no further than it takes to tell, and keeps what it read.
async fn begins_as_http(outside: &mut (impl AsyncRead + Unpin), start: &mut Vec<u8>) -> bool {
    const METHODS: [&str; 7] = ["GET ", "POST ", "PUT ", "DELETE ", "HEAD ", "PATCH ", "OPTIONS "];
    while METHODS.iter().any(|method| method.as_bytes().starts_with(start)) {
        if METHODS.iter().any(|method| method.as_bytes() == start) {
            return true;
        }
        match outside.read_u8().await {
            Ok(byte) => start.push(byte),
            Err(_) => return false,
        }
    }
    false
}

async fn requests<T>(engine: Arc<Engine>, container: String, outside: T, inside: TcpStream)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok((sender, connection)) = hyper::client::conn::http1::handshake(TokioIo::new(inside)).await else {
        return;
    };
    let connection = tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    let passage = Arc::new(Passage { engine, container, sender: Mutex::new(sender) });
    let service = service_fn(move |request| {
        let passage = passage.clone();
        async move { passage.request(request).await }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(outside), service)
        .with_upgrades()
        .await;
    connection.abort();
}

/// Why a request gets no answer: its connection is cut.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("by a fault")]
    Fault,
    #[error("the request could not be read")]
    Request,
    #[error("the container's side is gone")]
    Inside,
}

/// One tunnel, read as HTTP.
struct Passage {
    engine: Arc<Engine>,
    container: String,
    sender: Mutex<SendRequest<AnyBody>>,
}

impl Passage {
    async fn request(&self, request: Request<Incoming>) -> Result<Response<AnyBody>, Lost> {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let n = self.engine.calls.arrived(Plane::Ingress, Some(&self.container), &method, &path);
        let fault = self.engine.faults.take(Plane::Ingress, Some(&self.container), &method, &path);
        let answer = self.with_fault(request, fault).await?;
        self.engine.calls.answered(n, answer.status().as_u16());
        Ok(answer)
    }

    async fn with_fault(
        &self,
        request: Request<Incoming>,
        fault: Option<Action>,
    ) -> Result<Response<AnyBody>, Lost> {
        match fault {
            None => self.forward(any(request)).await,
            Some(Action::DropBefore) => Err(Lost::Fault),
            Some(Action::DropAfter) => {
                // To its end: the effect is had, and only the word of it is lost.
                let answer = self.forward(any(request)).await?;
                let _ = answer.into_body().collect().await;
                Err(Lost::Fault)
            }
            Some(Action::Delay { ms }) => {
                pause(ms).await;
                self.forward(any(request)).await
            }
            Some(Action::DelayAnswer { ms }) => {
                let answer = self.forward(any(request)).await;
                pause(ms).await;
                answer
            }
            Some(Action::Answer { status, body }) => {
                let mut answer = Response::new(full(body));
                *answer.status_mut() = StatusCode::from_u16(status).map_err(|_| Lost::Fault)?;
                Ok(answer)
            }
            Some(Action::Double) => {
                let (parts, body) = request.into_parts();
                let body = Limited::new(body, MAX_DOUBLED_BYTES)
                    .collect()
                    .await
                    .map_err(|_| Lost::Request)?
                    .to_bytes();
                let first = self.forward(Request::from_parts(parts.clone(), full(body.clone()))).await?;
                first.into_body().collect().await.map_err(|_| Lost::Inside)?;
                self.forward(Request::from_parts(parts, full(body))).await
            }
            Some(Action::Cut { bytes }) => {
                let answer = self.forward(any(request)).await?;
                Ok(answer.map(|body| {
                    let pause = Box::pin(tokio::time::sleep(FLUSH_PAUSE));
                    BodyExt::boxed(Shortened { body, left: bytes, pause })
                }))
            }
        }
    }

    async fn forward(&self, mut request: Request<AnyBody>) -> Result<Response<AnyBody>, Lost> {
        let wanted = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
        if wanted.is_none() {
            // Between the caller and us: inside, the connection may have to serve a second delivery.
            request.headers_mut().remove(CONNECTION);
        }
        let answer = {
            let mut sender = self.sender.lock().await;
            sender.ready().await.map_err(|_| Lost::Inside)?;
            sender.send_request(request)
        };
        let mut answer = answer.await.map_err(|_| Lost::Inside)?;
        if let Some(outside) = wanted.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
            let inside = hyper::upgrade::on(&mut answer);
            tokio::spawn(async move {
                if let (Ok(outside), Ok(inside)) = tokio::join!(outside, inside) {
                    let (mut outside, mut inside) = (TokioIo::new(outside), TokioIo::new(inside));
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                }
            });
        } else {
            answer.headers_mut().remove(CONNECTION);
        }
        Ok(answer.map(|body| body.map_err(boxed).boxed()))
    }
}

fn any(request: Request<Incoming>) -> Request<AnyBody> {
    request.map(|body| body.map_err(boxed).boxed())
}

fn full(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn boxed(error: hyper::Error) -> AnyError {
    Box::new(error)
}

/// A body that fails after so many bytes, once they have been sent.
struct Shortened {
    body: AnyBody,
    left: u64,
    pause: Pin<Box<tokio::time::Sleep>>,
}

/// What was given to the connection before an error is dropped with it unless it was flushed by then.
const FLUSH_PAUSE: Duration = Duration::from_millis(50);

impl Body for Shortened {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        if self.left == 0 {
            ready!(self.pause.as_mut().poll(context));
            return Poll::Ready(Some(Err(Box::new(Cut))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| match frame.into_data() {
                Ok(mut data) => {
                    let keep = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
                    self.left -= keep as u64;
                    self.pause.as_mut().reset(tokio::time::Instant::now() + FLUSH_PAUSE);
                    Frame::data(data.split_to(keep))
                }
                Err(other) => other,
            })
        }))
    }
}
