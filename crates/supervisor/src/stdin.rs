//! A job's standard input.
use tokio::net::unix::pipe;
pub struct Stdin {
    pipe: Option<pipe::Sender>,
}
impl Stdin {
    pub fn none() -> Self {
        Self { pipe: None }
    }
    pub fn pipe(pipe: pipe::Sender) -> Self {
        Self { pipe: Some(pipe) }
    }
    pub fn close(&mut self) {
        self.pipe = None;
    }
}
