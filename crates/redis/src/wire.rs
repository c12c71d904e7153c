//! A connection that is moved by whoever waits for an answer: it writes what is asked and reads what is said, with no task,
//! queue or channel in between. All who wait at the same time must be of one task.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// How much is read at a time at least, if it is there.
const PART: usize = 16 << 10;

/// From which size on the room for what is read is given back once it is empty.
const LARGE: usize = 1 << 20;

/// A connection to a server.
pub(crate) struct Wire(Mutex<Ends>);

/// Both ends of it.
struct Ends {
    stream: TcpStream,
    /// What is to be written, and how much of it was.
    out: Vec<u8>,
    written: usize,
    /// What was read, and between where it is not taken yet.
    come: Vec<u8>,
    taken: usize,
    filled: usize,
    /// Answers in the order of the questions, from the one of this number on; none in place of one that was given.
    answers: VecDeque<Option<Value>>,
    first: u64,
    /// How many were asked for.
    asked: u64,
    /// When something was last asked or said, and how long the server may be silent while something is to be answered.
    moved: Instant,
    patience: Duration,
    alarm: Pin<Box<Sleep>>,
    /// Why it is of no more use.
    lost: Option<io::ErrorKind>,
}

/// Answers that someone waits for. If they are not waited for any more, the connection is of no use to anyone else.
struct Waiting<'a> {
    wire: &'a Wire,
    first: u64,
    count: u64,
    given: bool,
}

impl Wire {
    /// On a stream that is connected. The runtime that it is called in is that of the stream.
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> Self {
        Self(Mutex::new(Ends {
            stream,
            out: Vec::new(),
            written: 0,
            come: Vec::new(),
            taken: 0,
            filled: 0,
            answers: VecDeque::new(),
            first: 0,
            asked: 0,
            moved: Instant::now(),
            patience,
            alarm: Box::pin(sleep(patience)),
            lost: None,
        }))
    }

    /// Asks something that so many answers come to, and waits for them. Errors that the server answers are among them.
    pub(crate) async fn ask(
        &self,
        question: impl FnOnce(&mut Vec<u8>),
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let mut waiting = {
            let mut ends = self.lock();
            question(&mut ends.out);
            if ends.is_idle() {
                ends.moved = Instant::now();
            }
            let (first, count) = (ends.asked, count as u64);
            ends.asked += count;
            Waiting { wire: self, first, count, given: false }
        };
        poll_fn(|context| waiting.poll(context)).await
    }

    /// Whether it is open, as far as that can be seen without asking. Nobody may wait for an answer.
    pub(crate) fn is_open(&self) -> bool {
        let mut ends = self.lock();
        ends.is_idle() && ends.go_on(&mut Context::from_waker(Waker::noop())).is_ok()
    }

    /// Whether it is known to be of no more use.
    pub(crate) fn is_lost(&self) -> bool {
        self.lock().lost.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<RedisResult<Vec<Value>>> {
        let mut ends = self.wire.lock();
        if !ends.has(self.first + self.count) {
            let went = ends.go_on(context);
            if !ends.has(self.first + self.count) {
                return match went {
                    Ok(()) => Poll::Pending,
                    Err(kind) => {
                        self.given = true;
                        Poll::Ready(Err(RedisError::from(io::Error::from(kind))))
                    }
                };
            }
        }
        self.given = true;
        Poll::Ready(Ok((0..self.count).filter_map(|place| ends.give(self.first + place)).collect()))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.given {
            self.wire.lock().lost.get_or_insert(io::ErrorKind::Interrupted);
        }
    }
}

impl Ends {
    /// Whether all answers up to a number have come.
    fn has(&self, end: u64) -> bool {
        self.first + self.answers.len() as u64 >= end
    }

    /// Whether nothing is to be answered, and nobody waits for what was.
    fn is_idle(&self) -> bool {
        self.first == self.asked
    }

    fn give(&mut self, number: u64) -> Option<Value> {
        let place = usize::try_from(number - self.first).ok()?;
        let answer = self.answers.get_mut(place)?.take();
        while let Some(None) = self.answers.front() {
            self.answers.pop_front();
            self.first += 1;
        }
        answer
    }

    /// Writes and reads as much as can be now.
    fn go_on(&mut self, context: &mut Context<'_>) -> Result<(), io::ErrorKind> {
        if self.lost.is_none() {
            self.lost = self.move_on(context).err().map(|error| error.kind());
        }
        self.lost.map_or(Ok(()), Err)
    }

    fn move_on(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if let Poll::Ready(Err(error)) = self.write(context) {
            return Err(error);
        }
        while let Poll::Ready(count) = self.read(context)? {
            self.filled += count;
            self.moved = Instant::now();
            self.take_answers()?;
            // All that was there has been read, mostly, and nothing is left to be waited for.
            if self.has(self.asked) {
                break;
            }
        }
        self.wait_no_longer_than(context)
    }

    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let rest = &self.out[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.out.clear();
        self.out.shrink_to(LARGE);
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads what is there; answers how much.
    fn read(&mut self, context: &mut Context<'_>) -> io::Result<Poll<usize>> {
        if self.come.len() - self.filled < PART {
            self.come.resize((self.filled + PART).max(2 * self.filled), 0);
        }
        let mut room = ReadBuf::new(&mut self.come[self.filled..]);
        match Pin::new(&mut self.stream).poll_read(context, &mut room) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) if room.filled().is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(())) => Ok(Poll::Ready(room.filled().len())),
        }
    }

    /// Takes the answers that have come whole.
    fn take_answers(&mut self) -> io::Result<()> {
        while let Some((answer, length)) = answer(&self.come[self.taken..self.filled])? {
            if self.has(self.asked) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.answers.push_back(Some(answer));
            self.taken += length;
        }
        if self.taken == self.filled {
            (self.taken, self.filled) = (0, 0);
            if self.come.len() > LARGE {
                self.come = Vec::new();
            }
        }
        Ok(())
    }

    /// Sees to it that whoever waits looks again when the server has been silent for too long.
    fn wait_no_longer_than(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while !self.has(self.asked) && self.alarm.as_mut().poll(context).is_ready() {
            let latest = self.moved + self.patience;
            if latest <= Instant::now() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.alarm.as_mut().reset(latest);
        }
        Ok(())
    }
}

/// The answer that some bytes begin with, and how long it is; none if not all of it is there.
fn answer(bytes: &[u8]) -> io::Result<Option<(Value, usize)>> {
    let Some(line) = bytes.iter().position(|byte| *byte == b'\r').filter(|end| end + 1 < bytes.len()) else {
        return Ok(None);
    };
    let (text, after) = (bytes.get(1..line).unwrap_or_default(), line + 2);
    Ok(Some(match bytes[0] {
        b'$' => {
            let Ok(length) = usize::try_from(number(text)?) else { return Ok(Some((Value::Nil, after))) };
            let Some(body) = bytes.get(after..after + length).filter(|_| bytes.len() >= after + length + 2)
            else {
                return Ok(None);
            };
            (Value::BulkString(body.to_vec()), after + length + 2)
        }
        b'*' => {
            let Ok(count) = usize::try_from(number(text)?) else { return Ok(Some((Value::Nil, after))) };
            let (mut items, mut length) = (Vec::with_capacity(count.min(bytes.len())), after);
            for _ in 0..count {
                let Some((item, more)) = answer(&bytes[length..])? else { return Ok(None) };
                items.push(item);
                length += more;
            }
            (Value::Array(items), length)
        }
        b':' => (Value::Int(number(text)?), after),
        b'+' | b'-' => {
            let word = redis::parse_redis_value(&bytes[..after]);
            (word.map_err(|_| io::ErrorKind::InvalidData)?, after)
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }))
}

fn number(text: &[u8]) -> io::Result<i64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A wire, and what is at its other end.
    async fn wire(patience: Duration) -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (Wire::new(near.expect("connected"), patience), far.expect("accepted").0)
    }

    async fn ask(wire: &Wire, count: usize) -> RedisResult<Vec<Value>> {
        wire.ask(|out| out.extend(b"?\r\n"), count).await
    }

    /// Why it is of no more use, if someone who asks is told that.
    async fn lost(wire: &Wire) -> Option<io::ErrorKind> {
        assert!(ask(wire, 1).await.is_err() && wire.is_lost() && !wire.is_open());
        wire.lock().lost
    }

    #[test]
    fn an_answer_is_read_once_all_of_it_is_there() {
        let said = b"*6\r\n$4\r\na\r\nb\r\n:-7\r\n$-1\r\n*0\r\n+OK\r\n-ERR it is so\r\n";
        for length in 0..said.len() {
            assert_eq!(answer(&said[..length]).expect("good"), None, "{length} bytes");
        }
        let (read, length) = answer(&[said, &b"more"[..]].concat()).expect("good").expect("whole");
        let Value::Array(items) = read else { panic!("{read:?}") };
        let words = [
            Value::BulkString(b"a\r\nb".into()),
            Value::Int(-7),
            Value::Nil,
            Value::Array(vec![]),
            Value::Okay,
        ];
        assert_eq!((&items[..5], length), (&words[..], said.len()));
        assert!(
            matches!(&items[5], Value::ServerError(error) if error.details() == Some("it is so")),
            "{items:?}"
        );
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for said in [
            "\r\n",
            "HTTP/1.1 400 Bad Request\r\n",
            "$x\r\n",
            ":\r\n",
            "*1\r\n?\r\n",
            "$99999999999999999999\r\n",
        ] {
            assert!(answer(said.as_bytes()).is_err(), "{said:?}");
        }
    }

    #[tokio::test]
    async fn answers_go_to_whoever_asked_however_they_come() {
        let (wire, mut far) = wire(PATIENCE).await;
        let (mut one, mut two) = (Box::pin(ask(&wire, 1)), Box::pin(ask(&wire, 2)));
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        let mut asked = [0; 6];
        far.read_exact(&mut asked).await.expect("asked");
        assert_eq!(&asked, b"?\r\n?\r\n");
        far.write_all(b":1\r\n:2\r").await.expect("said");
        assert_eq!(one.await.expect("answered"), [Value::Int(1)]);
        assert!((&mut two).now_or_never().is_none());
        far.write_all(b"\n:3\r\n").await.expect("said");
        assert_eq!(two.await.expect("answered"), [Value::Int(2), Value::Int(3)]);
        // What comes for one that is not looked at yet is kept for it.
        let (mut one, mut two) = (Box::pin(ask(&wire, 1)), Box::pin(ask(&wire, 1)));
        assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
        far.write_all(b":4\r\n:5\r\n").await.expect("said");
        assert_eq!(two.await.expect("answered"), [Value::Int(5)]);
        assert_eq!(one.await.expect("answered"), [Value::Int(4)]);
        assert!(wire.is_open());
    }

    #[tokio::test]
    async fn a_large_answer_and_a_large_question_go_through() {
        let (wire, mut far) = wire(PATIENCE).await;
        let large = vec![b'x'; 20 << 20];
        let question = async { wire.ask(|out| out.extend_from_slice(&large), 1).await };
        let server = async {
            let mut asked = vec![0; large.len()];
            far.read_exact(&mut asked).await.expect("asked");
            far.write_all(format!("${}\r\n", asked.len()).as_bytes()).await.expect("said");
            far.write_all(&asked).await.expect("said");
            far.write_all(b"\r\n").await.expect("said");
        };
        let (answered, ()) = tokio::join!(question, server);
        assert!(answered.expect("answered") == [Value::BulkString(large)]);
        assert!(wire.is_open());
    }

    #[tokio::test]
    async fn a_wire_is_lost_with_its_other_end_and_by_silence_and_by_nonsense() {
        let (gone, far) = wire(PATIENCE).await;
        drop(far);
        assert!(lost(&gone).await.is_some());

        let (silent, _far) = wire(Duration::from_millis(20)).await;
        assert_eq!(lost(&silent).await, Some(io::ErrorKind::TimedOut));

        let (odd, mut far) = wire(PATIENCE).await;
        far.write_all(b"?\r\n").await.expect("said");
        assert_eq!(lost(&odd).await, Some(io::ErrorKind::InvalidData));

        // An answer that nobody asked for may be meant for anyone.
        let (odd, mut far) = wire(PATIENCE).await;
        far.write_all(b":1\r\n:2\r\n").await.expect("said");
        let _ = ask(&odd, 1).await;
        assert_eq!(lost(&odd).await, Some(io::ErrorKind::InvalidData));
    }

    #[tokio::test]
    async fn who_leaves_before_the_answer_leaves_the_wire_to_nobody() {
        let (left, _far) = wire(PATIENCE).await;
        assert!(ask(&left, 1).now_or_never().is_none());
        assert_eq!(lost(&left).await, Some(io::ErrorKind::Interrupted));
    }
}
