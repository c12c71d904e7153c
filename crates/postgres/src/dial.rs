//! A new connection to the server: with a fresh password, encrypted as asked, and never waited for without end.

use std::time::Duration;

use statehold_core::Error;
use tokio::time::timeout;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::Config;
use crate::error::{Result, Trouble};

/// What goes over the wire, for whoever drives it.
pub(crate) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Connects.
pub(crate) async fn dial(config: &Config) -> Result<(Client, Wire)> {
    let mut server = config.server.clone();
    if let Some(password) = config.password.read().await? {
        server.password(password);
    }
    let mut refused = Trouble::Silence;
    for mode in config.tls.tries {
        match dial_with(config, server.ssl_mode(*mode)).await {
            Err(Trouble::Database(problem)) if problem.code().is_some() => refused = problem.into(),
            dialled => return dialled,
        }
    }
    Err(refused)
}

async fn dial_with(config: &Config, server: &tokio_postgres::Config) -> Result<(Client, Wire)> {
    // The driver's own limit is for the first packets to a host; a server may fall silent later.
    let hosts = u32::try_from(server.get_hosts().len().max(1)).unwrap_or(u32::MAX);
    let most = server.get_connect_timeout().copied().unwrap_or(Duration::from_secs(5)) * (hosts + 1);
    match timeout(most, server.connect(config.tls.connector.clone())).await {
        Ok(Ok(dialled)) => Ok(dialled),
        Ok(Err(problem)) => Err(judge(problem, server)),
        Err(_) => Err(Trouble::Silence),
    }
}

/// What will not be better the next time is for the caller at once.
fn judge(problem: tokio_postgres::Error, server: &tokio_postgres::Config) -> Trouble {
    let reason = std::error::Error::source(&problem).map(ToString::to_string).unwrap_or_default();
    // The driver tells its kinds of errors apart only by their texts.
    let error = match problem.to_string().as_str() {
        text if text.starts_with("error performing TLS handshake") && reason.contains("not support TLS") => {
            Error::unavailable("the server offers no TLS, which sslmode asks for")
                .hint("set ssl = on at the server; sslmode=prefer does without if there is none")
        }
        text if text.starts_with("error performing TLS handshake") && reason.contains("certificate") => {
            Error::unavailable(format!("the server's certificate is not trusted: {reason}")).hint(
                "name its authority with sslrootcert, and the host as the certificate does; nothing was sent",
            )
        }
        text if text.starts_with("invalid configuration") && server.get_password().is_none() => {
            Error::unavailable("the database asks for a password and there is none")
                .hint("give it in the URL, or with password_file, password_command or PGPASSWORD")
        }
        _ => return problem.into(),
    };
    Trouble::Ours(error.caused_by(problem))
}
