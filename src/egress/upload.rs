//! A request's body on its way out: streamed, held to its bound as it goes, and never read here unless the hop's terms
//! say that it must be looked into.
//!
//! Invariant: a body that breaks off never looks whole to its origin. A declared one goes out under its length, and a
//! stream of that many bytes takes no other number; of one whose length is not known the runtime would take a broken
//! stream for its end, so the fetch is aborted instead, before the stream is let go.

use std::cell::Cell;
use std::rc::Rc;

use js_sys::{Object, Reflect, Uint8Array};
use ringfence_core::egress::{Denial, MAX_LFS_BATCH_BYTES, wants_download_only};
use ringfence_wire::internal::{AskedHop, HopTerms};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{AbortController, ReadableStream, Request, Response, StreamPipeOptions, TransformStream};

use super::fetch::FixedLengthStream;

#[wasm_bindgen]
extern "C" {
    /// The controller a transformer is called with.
    pub type Controller;
    #[wasm_bindgen(method, catch)]
    fn enqueue(this: &Controller, chunk: &JsValue) -> Result<(), JsValue>;
}

type Transform = Closure<dyn FnMut(JsValue, Controller) -> Result<(), JsValue>>;

pub enum Upload {
    None,
    /// Of no bound, or held to the length it declares: framed in chunks as well, it could be of any other.
    Plain(ReadableStream),
    /// Its length is not known: counted as it goes.
    Counted {
        counted: ReadableStream,
        over: Rc<Cell<bool>>,
        _transform: Transform,
    },
    /// Looked into before it went.
    Read(Uint8Array),
}

impl Upload {
    pub fn none() -> Self {
        Self::None
    }

    /// `abort` is the passage's own.
    pub async fn of(
        request: &Request,
        hop: &AskedHop,
        terms: &HopTerms,
        abort: &AbortController,
    ) -> Result<Self, Denial> {
        let Some(body) = request.body() else { return Ok(Self::None) };
        if terms.lfs_download_only {
            return read(&body, hop).await;
        }
        match (hop.declared_bytes, terms.max_request_bytes) {
            (Some(bytes), _) => declared(&body, bytes).map(Self::Plain).map_err(|_| Denial::BodyTooLarge),
            (None, None) => Ok(Self::Plain(body)),
            (None, Some(most)) => counted(&body, most, abort).map_err(|_| Denial::BodyTooLarge),
        }
    }

    /// The body for a fetch. A stream can be given once.
    pub fn body(&self) -> Option<JsValue> {
        match self {
            Self::None => None,
            Self::Plain(stream) | Self::Counted { counted: stream, .. } => Some(stream.into()),
            Self::Read(bytes) => Some(bytes.into()),
        }
    }

    pub fn can_be_sent_again(&self) -> bool {
        matches!(self, Self::None | Self::Read(_))
    }

    /// It was cut because it went over its bound.
    pub fn over_its_bound(&self) -> bool {
        matches!(self, Self::Counted { over, .. } if over.get())
    }
}

async fn read(body: &ReadableStream, hop: &AskedHop) -> Result<Upload, Denial> {
    // One that does not say how long it is would have to be read to be measured.
    let Some(bytes) = hop.declared_bytes.filter(|bytes| *bytes <= MAX_LFS_BATCH_BYTES) else {
        return Err(Denial::BodyTooLarge);
    };
    let whole = async {
        let stream = declared(body, bytes)?;
        let read = Response::new_with_opt_readable_stream(Some(&stream))?.array_buffer()?;
        Ok::<_, JsValue>(Uint8Array::new(&JsFuture::from(read).await?))
    };
    let bytes = whole.await.map_err(|_| Denial::UploadIntent)?;
    if wants_download_only(&bytes.to_vec()) { Ok(Upload::Read(bytes)) } else { Err(Denial::UploadIntent) }
}

/// Exactly so many bytes, or the stream fails.
fn declared(body: &ReadableStream, bytes: u64) -> Result<ReadableStream, JsValue> {
    let through = FixedLengthStream::new(bytes as f64)?;
    let piped = JsFuture::from(body.pipe_to(&through.writable()));
    spawn_local(async move { drop(piped.await) });
    Ok(through.readable())
}

fn counted(body: &ReadableStream, most: u64, abort: &AbortController) -> Result<Upload, JsValue> {
    let over = Rc::new(Cell::new(false));
    let transform: Transform = {
        let (over, abort) = (Rc::clone(&over), abort.clone());
        let mut passed = 0u64;
        // A count that a panic left behind is never read: the stream has failed with it.
        let count = move |chunk: JsValue, controller: Controller| {
            let bytes =
                chunk.dyn_ref::<Uint8Array>().map_or(u64::MAX, |chunk| u64::from(chunk.byte_length()));
            passed = passed.saturating_add(bytes);
            if passed > most {
                over.set(true);
                abort.abort();
                // Nothing of it goes further, and no end either.
                return Ok(());
            }
            controller.enqueue(&chunk)
        };
        Closure::wrap_assert_unwind_safe(
            Box::new(count) as Box<dyn FnMut(JsValue, Controller) -> Result<(), JsValue>>
        )
    };
    let transformer = Object::new();
    Reflect::set(&transformer, &"transform".into(), transform.as_ref())?;
    let stream = TransformStream::new_with_transformer(&transformer)?;
    let options = StreamPipeOptions::new();
    options.set_prevent_abort(true);
    let piped = JsFuture::from(body.pipe_to_with_options(&stream.writable(), &options));
    let abort = abort.clone();
    spawn_local(async move {
        if piped.await.is_err() {
            abort.abort();
        }
    });
    Ok(Upload::Counted { counted: stream.readable(), over, _transform: transform })
}
