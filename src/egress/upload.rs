//! A request's body on its way out: streamed, held to its bound as it goes, and never read here unless the hop's terms
//! say that it must be looked into.

use std::cell::Cell;
use std::rc::Rc;

use js_sys::{Object, Reflect, Uint8Array};
use ringfence_core::egress::{Denial, MAX_LFS_BATCH_BYTES, wants_download_only};
use ringfence_wire::internal::{AskedHop, HopTerms};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{ReadableStream, Request, TransformStream};

#[wasm_bindgen]
extern "C" {
    /// The controller a transformer is called with.
    pub type Controller;
    #[wasm_bindgen(method, catch)]
    fn enqueue(this: &Controller, chunk: &JsValue) -> Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn error(this: &Controller, reason: &JsValue) -> Result<(), JsValue>;
}

type Transform = Closure<dyn FnMut(JsValue, Controller) -> Result<(), JsValue>>;

pub enum Upload {
    None,
    /// Its declared length fits; the runtime holds it to that.
    Declared(ReadableStream),
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

    pub async fn of(request: &Request, hop: &AskedHop, terms: &HopTerms) -> Result<Self, Denial> {
        let Some(body) = request.body() else { return Ok(Self::None) };
        if terms.lfs_download_only {
            return read(request, hop).await;
        }
        match (hop.declared_bytes, terms.max_request_bytes) {
            (Some(_), _) | (None, None) => Ok(Self::Declared(body)),
            (None, Some(most)) => counted(&body, most).map_err(|_| Denial::BodyTooLarge),
        }
    }

    /// The body for a fetch. A stream can be given once.
    pub fn body(&self) -> Option<JsValue> {
        match self {
            Self::None => None,
            Self::Declared(stream) | Self::Counted { counted: stream, .. } => Some(stream.into()),
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

async fn read(request: &Request, hop: &AskedHop) -> Result<Upload, Denial> {
    // One that does not say how long it is would have to be read to be measured.
    if hop.declared_bytes.is_none_or(|bytes| bytes > MAX_LFS_BATCH_BYTES) {
        return Err(Denial::BodyTooLarge);
    }
    let read = request.array_buffer().map_err(|_| Denial::UploadIntent)?;
    let bytes = Uint8Array::new(&JsFuture::from(read).await.map_err(|_| Denial::UploadIntent)?);
    if wants_download_only(&bytes.to_vec()) { Ok(Upload::Read(bytes)) } else { Err(Denial::UploadIntent) }
}

fn counted(body: &ReadableStream, most: u64) -> Result<Upload, JsValue> {
    let over = Rc::new(Cell::new(false));
    let transform: Transform = {
        let over = Rc::clone(&over);
        let mut passed = 0u64;
        // A count that a panic left behind is never read: the stream has failed with it.
        let count = move |chunk: JsValue, controller: Controller| {
            let bytes =
                chunk.dyn_ref::<Uint8Array>().map_or(u64::MAX, |chunk| u64::from(chunk.byte_length()));
            passed = passed.saturating_add(bytes);
            if passed > most {
                over.set(true);
                return controller.error(&js_sys::Error::new("the body is over its bound").into());
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
    // A pipe that fails fails the fetch that reads its other end, and is seen there.
    let piped = JsFuture::from(body.pipe_to(&stream.writable()));
    spawn_local(async move { drop(piped.await) });
    Ok(Upload::Counted { counted: stream.readable(), over, _transform: transform })
}
