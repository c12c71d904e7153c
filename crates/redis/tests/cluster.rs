//! The suite on a cluster of three servers, with a prefix for each case.

mod server;

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use server::{Server, URL_VARIABLE};
use statehold_redis::Redis;

fn main() -> ExitCode {
    if std::env::var_os(URL_VARIABLE).is_some() {
        return tests();
    }
    let servers = [(); 3].map(|()| Server::in_a_cluster());
    let addresses = servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port()));
    let made = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(&addresses)
        .args(["--cluster-replicas", "0", "--cluster-yes"])
        .output()
        .expect("redis-cli runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    servers.iter().for_each(wait);
    let program = std::env::current_exe().expect("this program has a name");
    let status = Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(URL_VARIABLE, servers[0].url())
        .status()
        .expect("this program starts again");
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn tests() -> ExitCode {
    statehold_conformance::run(|clock| {
        let config = server::config().with_clock(clock);
        async move { Redis::open(config).await.expect("the store opens") }
    })
}

/// Waits until a server knows the whole cluster.
fn wait(server: &Server) {
    let began = Instant::now();
    loop {
        let port = server.port().to_string();
        let said = Command::new("redis-cli")
            .args(["-p", &port, "CLUSTER", "INFO"])
            .output()
            .expect("redis-cli runs");
        if String::from_utf8_lossy(&said.stdout).contains("cluster_state:ok") {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the cluster does not come together");
        std::thread::sleep(Duration::from_millis(50));
    }
}
