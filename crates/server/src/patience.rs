//! How long a client is waited for: until the head of its request is there, then the body, and until it takes an answer.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::Timer;
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// The one timer of a connection, for whatever it waits for at present. Setting a timer takes longer than much of a
/// small request, so one that is set stays so while requests come and go: if it rings too early, it is set anew.
#[derive(Clone, Debug)]
pub(crate) struct Alarm(Arc<Mutex<Pin<Box<Sleep>>>>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Box::pin(tokio::time::sleep(Duration::ZERO)))))
    }

    /// Whether it is that late. Who asks is woken when it is, unless another task asks meanwhile.
    pub(crate) fn poll_until(&self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if set.deadline() > deadline {
            set.as_mut().reset(deadline);
        }
        loop {
            ready!(set.as_mut().poll(context));
            if set.deadline() >= deadline {
                return Poll::Ready(());
            }
            set.as_mut().reset(deadline);
        }
    }
}

/// For the heads of requests.
impl Timer for Alarm {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Until { alarm: self.clone(), deadline: deadline.into() })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

/// Waits until an alarm rings.
struct Until {
    alarm: Alarm,
    deadline: Instant,
}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.alarm.poll_until(self.deadline, context)
    }
}

impl hyper::rt::Sleep for Until {}

/// The body of a request, which is not waited for without end.
pub(crate) struct Patient {
    body: Incoming,
    patience: Duration,
    alarm: Alarm,
    deadline: Option<Instant>,
}

impl Patient {
    pub(crate) fn new(body: Incoming, patience: Duration, alarm: Alarm) -> Self {
        Self { body, patience, alarm, deadline: None }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(came) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(came.map(|frame| frame.map_err(Into::into)));
        }
        let patience = self.patience;
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + patience);
        ready!(self.alarm.poll_until(deadline, context));
        Poll::Ready(Some(Err(Late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body did not come in time.
#[derive(Debug)]
pub(crate) struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body did not come in time")
    }
}

impl Error for Late {}

/// A connection that is cut when its reader takes nothing for too long. What was not read is not kept: the client
/// resumes by its cursor.
pub(crate) struct Impatient {
    stream: TcpStream,
    patience: Duration,
    cut: IntCounter,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    pub(crate) fn new(stream: TcpStream, patience: Duration, cut: IntCounter) -> Self {
        Self { stream, patience, cut, stalled: None }
    }

    /// What writing came to, or an error once it has come to nothing for too long.
    fn judge<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => {
                self.cut.inc();
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, shut)
    }
}
