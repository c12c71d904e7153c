//! A way to a server on which calls or their answers are lost.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server does it, and its answer is lost with the connection.
    Answer,
    /// It is lost with the connection.
    Call,
    /// The connection is lost, and the call comes to the server when it is let go.
    Late,
}

/// A way to a server. It is closed when this is dropped, for those who come.
pub struct Line(Arc<Way>);

struct Way {
    port: u16,
    server: u16,
    /// What happens to the next call in which this text is.
    next: Mutex<Option<(Fault, &'static str)>>,
    faults: AtomicUsize,
    shut: AtomicBool,
    clients: Mutex<Vec<TcpStream>>,
    hold: Sender<Held>,
    held: Mutex<Receiver<Held>>,
}

/// A call that has not come to the server yet.
struct Held {
    call: Vec<u8>,
    server: TcpStream,
    said: Receiver<Vec<u8>>,
}

/// What becomes of answers on a connection.
enum Back {
    /// They go to whoever called.
    Open,
    /// The next one is lost.
    Lost,
    /// They go to whoever lets the call go.
    Held(Sender<Vec<u8>>),
}

impl Line {
    /// A way to the server at this port.
    ///
    /// # Panics
    /// If there is no port for it.
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (hold, waiting) = channel();
        let way = Arc::new(Way {
            port: listener.local_addr().expect("its address").port(),
            server,
            next: Mutex::new(None),
            faults: AtomicUsize::new(0),
            shut: AtomicBool::new(false),
            clients: Mutex::default(),
            hold,
            held: Mutex::new(waiting),
        });
        let ours = Arc::clone(&way);
        thread::spawn(move || {
            for client in listener.incoming() {
                if ours.shut.load(Ordering::SeqCst) {
                    return;
                }
                ours.lead(client.expect("a connection"));
            }
        });
        Self(way)
    }

    /// Where it begins.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Lets something happen to the next call in which this text is.
    pub fn break_next(&self, fault: Fault, text: &'static str) {
        *locked(&self.0.next) = Some((fault, text));
    }

    /// How often something has happened.
    pub fn faults(&self) -> usize {
        self.0.faults.load(Ordering::SeqCst)
    }

    /// Lets nobody in any more, and ends all who are when something happens to a call.
    pub fn shut(&self) {
        self.0.shut.store(true, Ordering::SeqCst);
    }

    /// Lets a call that was held come to the server; answers what the server says.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn let_go(&self) -> String {
        let Held { call, mut server, said } = locked(&self.0.held).recv().expect("a call is held");
        server.write_all(&call).expect("it is sent");
        let said = said.recv().expect("the server answers");
        String::from_utf8_lossy(&said).into_owned()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shut();
        // Whoever waits for the next one to come sees it.
        let _ = TcpStream::connect(("127.0.0.1", self.0.port));
    }
}

impl Way {
    fn lead(self: &Arc<Self>, client: TcpStream) {
        // It may be gone for the moment.
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("it is set");
        }
        locked(&self.clients).push(client.try_clone().expect("a clone"));
        let (way, back) = (Arc::clone(self), Arc::new(Mutex::new(Back::Open)));
        let ends = (server.try_clone().expect("a clone"), client.try_clone().expect("a clone"));
        let same = Arc::clone(&back);
        thread::spawn(move || bring_back(ends.0, ends.1, &same));
        thread::spawn(move || way.forth(client, server, &back));
    }

    fn forth(&self, mut client: TcpStream, mut server: TcpStream, back: &Mutex<Back>) {
        let mut bytes = vec![0; 1 << 20];
        while let Ok(length @ 1..) = client.read(&mut bytes) {
            let call = &bytes[..length];
            match self.fault(call) {
                None => {}
                Some(Fault::Answer) => *locked(back) = Back::Lost,
                Some(Fault::Call) => break,
                Some(Fault::Late) => {
                    let (tell, said) = channel();
                    *locked(back) = Back::Held(tell);
                    self.hold.send(Held { call: call.to_vec(), server, said }).expect("it is held");
                    let _ = client.shutdown(Shutdown::Both);
                    return;
                }
            }
            if matches!(*locked(back), Back::Lost) && self.shut.load(Ordering::SeqCst) {
                for client in &*locked(&self.clients) {
                    let _ = client.shutdown(Shutdown::Both);
                }
            }
            if server.write_all(call).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }

    /// What happens to a call.
    fn fault(&self, call: &[u8]) -> Option<Fault> {
        let mut next = locked(&self.next);
        let (fault, text) = (*next)?;
        let found = call.windows(text.len()).any(|part| part == text.as_bytes());
        if !found {
            return None;
        }
        *next = None;
        self.faults.fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }
}

/// Brings answers back until one is lost. The server has done what it answers.
fn bring_back(mut server: TcpStream, mut client: TcpStream, back: &Mutex<Back>) {
    let mut bytes = vec![0; 1 << 20];
    while let Ok(length @ 1..) = server.read(&mut bytes) {
        let brought = match &*locked(back) {
            Back::Open => client.write_all(&bytes[..length]).is_ok(),
            Back::Lost => false,
            Back::Held(tell) => tell.send(bytes[..length].to_vec()).is_ok(),
        };
        if !brought {
            let _ = server.shutdown(Shutdown::Both);
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody has failed")
}
