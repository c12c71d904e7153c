//! Wakes within this process and between the processes that have the file open.
//!
//! Each process binds a datagram socket beside the file, `<file>-peer-<number>`, greets the sockets that are there,
//! and after each commit tells whom it knows the marks of what changed. A process that is alone sends nothing and
//! its receiving thread sleeps. Datagrams between local sockets are not lost: one that the receiver has no room
//! for is refused to the sender, who then says "look at everything" as soon as there is room. The silence of a
//! process that was killed between a commit and its message is noticed within a second, and everyone looks.

use std::sync::Arc;

use statehold_core::backend::Push;
use statehold_core::wake::{Hub, Mark};

/// Wakes whoever waits, here and in other processes.
#[derive(Clone)]
pub(crate) struct Wakes {
    pub(crate) hub: Hub,
    peers: Option<Arc<peers::Peers>>,
}

impl Wakes {
    /// Joins the processes that have the file open.
    pub(crate) fn join(file: &std::path::Path) -> Self {
        let hub = Hub::new();
        Self { peers: peers::Peers::join(file, hub.clone()).ok(), hub }
    }

    /// Whether other processes have the file open.
    pub(crate) fn has_peers(&self) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.any())
    }

    /// Whether wakes travel between processes.
    pub(crate) fn push(&self) -> Push {
        if self.peers.is_some() { Push::Ok } else { Push::Broken }
    }

    /// Wakes for what a commit changed. The marks are only worked out if someone may wait for them.
    pub(crate) fn wake<M: Iterator<Item = Mark>>(&self, marks: impl Fn() -> M) {
        if !self.hub.is_empty() {
            self.hub.wake(marks());
        }
        if let Some(peers) = self.peers.as_ref().filter(|peers| peers.any()) {
            peers.tell(&mut marks());
        }
    }

    /// Wakes everyone everywhere.
    pub(crate) fn wake_all(&self) {
        self.hub.wake_all();
        if let Some(peers) = &self.peers {
            peers.tell_all();
        }
    }

    /// Takes leave of the other processes.
    pub(crate) fn leave(&self) {
        if let Some(peers) = &self.peers {
            peers.leave();
        }
    }
}

#[cfg(not(unix))]
mod peers {
    //! Without local datagram sockets there is nobody to tell.

    use super::{Hub, Mark};

    pub(super) struct Peers;

    impl Peers {
        pub(super) fn join(_: &std::path::Path, _: Hub) -> std::io::Result<std::sync::Arc<Self>> {
            Err(std::io::ErrorKind::Unsupported.into())
        }
        pub(super) fn any(&self) -> bool {
            false
        }
        pub(super) fn tell(&self, _: &mut dyn Iterator<Item = Mark>) {}
        pub(super) fn tell_all(&self) {}
        pub(super) fn leave(&self) {}
    }
}

#[cfg(unix)]
mod peers {
    use std::collections::BTreeMap;
    use std::fs;
    use std::io::{ErrorKind, Result};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixDatagram;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    use statehold_core::model::TaskId;
    use statehold_core::wake::{Hub, Mark};

    /// How often a process that is not alone looks whether someone fell behind.
    const TICK: Duration = Duration::from_millis(20);
    /// How often it looks whether someone has gone.
    const ROUND: Duration = Duration::from_secs(1);
    /// How long a newcomer waits for the others to know it.
    const WELCOME: Duration = Duration::from_millis(300);
    /// The most marks in one message; beyond, it says "everything".
    const MOST: usize = 4000;

    /// The first byte of a message.
    mod tag {
        pub(super) const HELLO: u8 = b'h';
        pub(super) const WELCOME: u8 = b'w';
        pub(super) const MARKS: u8 = b'm';
        pub(super) const EVERYTHING: u8 = b'e';
        pub(super) const PING: u8 = b'p';
        pub(super) const BYE: u8 = b'b';
    }

    pub(super) struct Peers {
        folder: Folder,
        name: String,
        socket: UnixDatagram,
        /// Sends without waiting for room.
        outgoing: UnixDatagram,
        hub: Hub,
        /// By the name of the socket: whether it must look at everything, because it had no room for a message.
        known: Mutex<BTreeMap<String, bool>>,
        count: AtomicUsize,
        left: AtomicBool,
    }

    /// Where the sockets are.
    struct Folder {
        path: PathBuf,
        /// What their names begin with.
        prefix: String,
        /// Kept open, since the way to a socket may be too long for its address.
        #[cfg(target_os = "linux")]
        open: fs::File,
    }

    impl Folder {
        fn of(file: &Path) -> Result<Self> {
            let name = file.file_name().and_then(|name| name.to_str()).ok_or(ErrorKind::InvalidInput)?;
            let path = match file.parent() {
                Some(parent) if parent != Path::new("") => parent.to_owned(),
                _ => PathBuf::from("."),
            };
            Ok(Self {
                #[cfg(target_os = "linux")]
                open: fs::File::open(&path)?,
                path,
                prefix: format!("{name}-peer-"),
            })
        }

        /// A short way to a socket.
        fn address(&self, name: &str) -> PathBuf {
            #[cfg(target_os = "linux")]
            {
                use std::os::fd::AsRawFd as _;
                PathBuf::from(format!("/proc/self/fd/{}/{name}", self.open.as_raw_fd()))
            }
            #[cfg(not(target_os = "linux"))]
            self.path.join(name)
        }

        fn names(&self) -> Result<Vec<String>> {
            let names =
                fs::read_dir(&self.path)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            Ok(names.filter(|name| name.starts_with(&self.prefix)).collect())
        }
    }

    impl Peers {
        pub(super) fn join(file: &Path, hub: Hub) -> Result<Arc<Self>> {
            let folder = Folder::of(file)?;
            let id = TaskId::generate().to_string();
            let name = format!("{}{}", folder.prefix, &id[id.len() - 12..]);
            let socket = UnixDatagram::bind(folder.address(&name))?;
            fs::set_permissions(folder.path.join(&name), fs::Permissions::from_mode(0o600))?;
            let outgoing = UnixDatagram::unbound()?;
            outgoing.set_nonblocking(true)?;
            let peers = Arc::new(Self {
                folder,
                name,
                socket,
                outgoing,
                hub,
                known: Mutex::default(),
                count: AtomicUsize::new(0),
                left: AtomicBool::new(false),
            });
            peers.greet()?;
            let receiver = Arc::clone(&peers);
            std::thread::Builder::new().name("statehold-peers".into()).spawn(move || receiver.receive())?;
            Ok(peers)
        }

        fn known(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
            self.known.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(super) fn any(&self) -> bool {
            self.count.load(Ordering::Relaxed) > 0
        }

        /// Sends to one socket without waiting. A socket that nobody listens at is removed.
        fn send(&self, name: &str, message: &[u8]) -> Result<()> {
            let sent = self.outgoing.send_to(message, self.folder.address(name)).map(drop);
            if sent.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(self.folder.path.join(name));
            }
            sent
        }

        fn named(&self, tag: u8) -> Vec<u8> {
            let mut message = vec![tag];
            message.extend(self.name.as_bytes());
            message
        }

        /// Says hello to everyone and waits until all who live have answered, so that no change after this is
        /// missed. Someone who is stopped is not waited for long.
        fn greet(&self) -> Result<()> {
            let until = Instant::now() + WELCOME;
            let mut awaited: Vec<_> = self.folder.names()?;
            awaited.retain(|name| *name != self.name && self.hello(name, until).is_ok());
            while awaited.iter().any(|name| !self.known().contains_key(name)) {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                self.socket.set_read_timeout(Some(left))?;
                self.take_one();
            }
            Ok(())
        }

        /// Says hello, as soon as there is room for it.
        fn hello(&self, name: &str, until: Instant) -> Result<()> {
            loop {
                match self.send(name, &self.named(tag::HELLO)) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    sent => return sent,
                }
            }
        }

        fn receive(&self) {
            let mut round = Instant::now();
            while !self.left.load(Ordering::Acquire) {
                let tick = self.any().then_some(TICK);
                if self.socket.set_read_timeout(tick).is_err() {
                    return;
                }
                if !self.take_one() {
                    self.help_who_fell_behind();
                }
                if self.any() && round.elapsed() > ROUND {
                    round = Instant::now();
                    self.look_who_has_gone();
                }
            }
        }

        /// Takes a message; false if none came.
        fn take_one(&self) -> bool {
            let mut message = vec![0; 1 + 8 * MOST];
            let Ok(length) = self.socket.recv(&mut message) else { return false };
            let Some((tag, body)) = message[..length].split_first() else { return true };
            let name = || String::from_utf8_lossy(body).into_owned();
            match *tag {
                tag::HELLO => {
                    let name = name();
                    if self.send(&name, &self.named(tag::WELCOME)).is_ok() {
                        self.add(name);
                    }
                }
                tag::WELCOME => self.add(name()),
                tag::MARKS => {
                    let marks = body.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok());
                    self.hub.wake(marks.map(u64::from_le_bytes).map(Mark));
                }
                tag::EVERYTHING => self.hub.wake_all(),
                tag::BYE => self.forget(&name()),
                _ => {}
            }
            true
        }

        fn add(&self, name: String) {
            let mut known = self.known();
            known.insert(name, false);
            self.count.store(known.len(), Ordering::Relaxed);
        }

        fn forget(&self, name: &str) {
            let mut known = self.known();
            known.remove(name);
            self.count.store(known.len(), Ordering::Relaxed);
        }

        /// Tells everyone what changed.
        pub(super) fn tell(&self, marks: &mut dyn Iterator<Item = Mark>) {
            let mut message = vec![tag::MARKS];
            for mark in marks.take(MOST + 1) {
                message.extend(mark.0.to_le_bytes());
            }
            if message.len() > 1 + 8 * MOST {
                message = vec![tag::EVERYTHING];
            }
            self.tell_known(&message);
        }

        pub(super) fn tell_all(&self) {
            self.tell_known(&[tag::EVERYTHING]);
        }

        fn tell_known(&self, message: &[u8]) {
            let mut gone = Vec::new();
            for (name, behind) in self.known().iter_mut() {
                let message = if *behind { &[tag::EVERYTHING] } else { message };
                match self.send(name, message) {
                    Ok(()) => *behind = false,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => *behind = true,
                    Err(_) => gone.push(name.clone()),
                }
            }
            self.bury(&gone);
        }

        /// Someone who has gone without a word may have changed anything just before.
        fn bury(&self, gone: &[String]) {
            for name in gone {
                self.forget(name);
            }
            if !gone.is_empty() {
                self.hub.wake_all();
            }
        }

        fn help_who_fell_behind(&self) {
            if self.known().values().any(|behind| *behind) {
                self.tell_known(&[tag::EVERYTHING]);
            }
        }

        fn look_who_has_gone(&self) {
            self.tell_known(&[tag::PING]);
        }

        pub(super) fn leave(&self) {
            self.left.store(true, Ordering::Release);
            let _ = self.send(&self.name, &[tag::BYE]);
            let _ = fs::remove_file(self.folder.path.join(&self.name));
            let names: Vec<_> = self.known().keys().cloned().collect();
            for name in names {
                let _ = self.send(&name, &self.named(tag::BYE));
            }
        }
    }
}
