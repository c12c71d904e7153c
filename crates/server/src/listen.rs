//! Connections: accepted up to a bound, with TLS if that is set up, cut when nobody reads, and drained at the end.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use prometheus::IntCounter;
use statehold::worker::Stopping;
use statehold::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::app::{App, Tls};
use crate::route::Routes;

/// How long to wait when no connection can be accepted, such as when there are no file descriptors left.
const AFTER_TROUBLE: Duration = Duration::from_millis(50);

/// Answers requests until it is told to stop; then lets those that are on their way come to their end.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: &Arc<Routes>,
    app: &App,
    stopping: &Stopping,
) -> Result<()> {
    let tls = app.config.tls.as_ref().map(acceptor).transpose()?;
    let room = Arc::new(Semaphore::new(app.config.max_connections));
    let graceful = GracefulShutdown::new();
    while let Some(Ok(permit)) = stopping.run_until_cancelled(Arc::clone(&room).acquire_owned()).await {
        let accepted = match stopping.run_until_cancelled(listener.accept()).await {
            None => break,
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(AFTER_TROUBLE).await;
                continue;
            }
        };
        let connection = Connection {
            routes: Arc::clone(routes),
            tls: tls.clone(),
            patience: app.config.patience,
            cut: app.metrics.cut.clone(),
            watcher: graceful.watcher(),
        };
        let open = app.metrics.connections.guard();
        tokio::spawn(async move {
            connection.run(accepted).await;
            drop((permit, open));
        });
    }
    drop(listener);
    app.draining.cancel();
    if tokio::time::timeout(app.config.grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end within the grace period");
    }
    Ok(())
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Error::invalid(what, error.to_string()).hint("check the PEM files of --tls-certificate and --tls-key")
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&tls.certificate)
        .collect::<Result<_, _>>()
        .map_err(|e| failed("tls certificate", &e))?;
    let key = PrivateKeyDer::from_pem_slice(&tls.key).map_err(|e| failed("tls key", &e))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| failed("tls", &e))?;
    let mut config =
        config.with_no_client_auth().with_single_cert(chain, key).map_err(|e| failed("tls key", &e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// One connection.
struct Connection {
    routes: Arc<Routes>,
    tls: Option<TlsAcceptor>,
    patience: Duration,
    cut: IntCounter,
    watcher: Watcher,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // Answers are small and waited for.
        let _ = stream.set_nodelay(true);
        let stream = Impatient { stream, patience: self.patience, cut: self.cut.clone(), stalled: None };
        match self.tls.clone() {
            None => self.answer(stream).await,
            Some(tls) => match tokio::time::timeout(self.patience, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.answer(stream).await,
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            },
        }
    }

    async fn answer(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // Answers are small: one copy of them costs less than handing the kernel a list of parts.
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.patience).writev(false);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(self.patience);
        let routes = self.routes;
        let service = service_fn(move |request| {
            let routes = Arc::clone(&routes);
            async move { Ok::<_, Infallible>(routes.answer(request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        if let Err(error) = self.watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// A connection that is cut when its reader takes nothing for too long. What was not read is not kept: the client
/// resumes by its cursor.
struct Impatient {
    stream: TcpStream,
    patience: Duration,
    cut: IntCounter,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
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
