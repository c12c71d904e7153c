//! Connections: accepted up to a bound, with TLS if that is set up, cut when nobody reads, and drained at the end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::Version;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use prometheus::IntCounter;
use statehold::worker::Stopping;
use statehold::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::app::{App, Tls};
use crate::patience::{Alarm, Impatient, Patient};
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
        let stream = Impatient::new(stream, self.patience, self.cut.clone());
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
        let (alarm, patience, routes) = (Alarm::new(), self.patience, self.routes);
        builder.http1().timer(alarm.clone()).header_read_timeout(patience).writev(false);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(patience);
        let (deadline, asked) = (Instant::now() + patience, Arc::new(AtomicBool::new(false)));
        let (waiting, asks) = (alarm.clone(), Arc::clone(&asked));
        let service = service_fn(move |request: hyper::Request<_>| {
            asks.store(true, Ordering::Relaxed);
            // Only the requests of HTTP/2 come beside each other.
            let alarm = if request.version() == Version::HTTP_2 { Alarm::new() } else { alarm.clone() };
            let request = request.map(|body| Patient::new(body, patience, alarm));
            let routes = Arc::clone(&routes);
            async move { Ok::<_, Infallible>(routes.answer(request).await) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let mut serving = pin!(self.watcher.watch(connection));
        // Which version is spoken hyper waits for without end.
        let ended = poll_fn(|context| {
            if let Poll::Ready(ended) = serving.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            if !asked.load(Ordering::Relaxed) {
                ready!(waiting.poll_until(deadline, context));
                return Poll::Ready(Err("nothing was asked".into()));
            }
            Poll::Pending
        });
        if let Err(error) = ended.await {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
