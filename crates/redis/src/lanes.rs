//! Lanes: who waits in a namespace, so that it goes on together. A lane is there while someone waits in it. Whoever comes
//! first moves it, as long as nobody else comes: a lone caller is answered without a change of hands. With the second it goes
//! on by itself, and also when the first one leaves.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::oneshot::{self, error::TryRecvError};

type Waiters<J> = Arc<Mutex<HashMap<String, Waiting<J>>>>;

/// The lanes of a store, by namespace.
pub(crate) struct Lanes<J>(Waiters<J>);

/// Who waits in a lane.
struct Waiting<J> {
    jobs: Vec<J>,
    /// Tells the lane that someone has come.
    bell: Arc<Notify>,
    /// The lane itself, while whoever came first moves it.
    ride: Option<Ride>,
}

/// A lane as it sees those who wait in it.
pub(crate) struct Seats<J> {
    lanes: Waiters<J>,
    namespace: String,
    bell: Arc<Notify>,
}

/// A lane that is moved by whoever came first.
#[derive(Clone)]
struct Ride(Arc<Mutex<Moving>>);

struct Moving {
    /// None once it is over or goes on by itself.
    lane: Option<BoxFuture<'static, ()>>,
    /// Wakes whoever moves it.
    driver: Option<Waker>,
}

impl<J: Send + 'static> Lanes<J> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// Lets a job wait in its lane until it is answered; `run` makes the lane if there is none.
    pub(crate) async fn wait<T>(
        &self,
        namespace: &str,
        job: J,
        answer: oneshot::Receiver<T>,
        run: impl FnOnce(Seats<J>) -> BoxFuture<'static, ()>,
    ) -> Option<T> {
        let Some(ride) = self.enter(namespace, job, run) else { return answer.await.ok() };
        let (ride, mut answer) = (Driver(ride), pin!(answer));
        poll_fn(|context| {
            if !ride.0.poll(context) {
                return answer.as_mut().poll(context).map(Result::ok);
            }
            // An answer that comes while this moves the lane must not wake it: it would only be put behind others.
            match answer.try_recv() {
                Ok(answer) => Poll::Ready(Some(answer)),
                Err(TryRecvError::Empty) => Poll::Pending,
                Err(TryRecvError::Closed) => Poll::Ready(None),
            }
        })
        .await
    }

    fn enter(
        &self,
        namespace: &str,
        job: J,
        run: impl FnOnce(Seats<J>) -> BoxFuture<'static, ()>,
    ) -> Option<Ride> {
        let mut lanes = lock(&self.0);
        if let Some(lane) = lanes.get_mut(namespace) {
            lane.jobs.push(job);
            lane.bell.notify_one();
            let ride = lane.ride.take();
            // The lane looks at who waits while it is held, so who waits is let go before it is taken.
            drop(lanes);
            if let Some(ride) = ride {
                ride.go_on();
            }
            return None;
        }
        let bell = Arc::new(Notify::new());
        let seats =
            Seats { lanes: Arc::clone(&self.0), namespace: namespace.to_owned(), bell: Arc::clone(&bell) };
        let ride = Ride(Arc::new(Mutex::new(Moving { lane: Some(run(seats)), driver: None })));
        lanes.insert(namespace.to_owned(), Waiting { jobs: vec![job], bell, ride: Some(ride.clone()) });
        Some(ride)
    }
}

impl<J> Seats<J> {
    /// Takes all who wait; none if the lane is over, because nobody does and it is idle.
    pub(crate) fn take(&self, idle: bool) -> Option<Vec<J>> {
        let mut lanes = lock(&self.lanes);
        let jobs =
            lanes.get_mut(&self.namespace).map(|lane| std::mem::take(&mut lane.jobs)).unwrap_or_default();
        if jobs.is_empty() && idle {
            lanes.remove(&self.namespace);
            return None;
        }
        Some(jobs)
    }

    /// Waits until someone comes.
    pub(crate) async fn someone(&self) {
        self.bell.notified().await;
    }
}

impl<J> Drop for Seats<J> {
    fn drop(&mut self) {
        // Only a lane that broke off is still there. Whoever waits in it is told so by the end of their jobs.
        let mut lanes = lock(&self.lanes);
        if lanes.get(&self.namespace).is_some_and(|lane| Arc::ptr_eq(&lane.bell, &self.bell)) {
            lanes.remove(&self.namespace);
        }
    }
}

impl Ride {
    /// Moves the lane; answers whether there is still something to move.
    fn poll(&self, context: &mut Context<'_>) -> bool {
        let mut moving = lock(&self.0);
        let Some(lane) = &mut moving.lane else { return false };
        if lane.as_mut().poll(context).is_ready() {
            moving.lane = None;
        } else if !moving.driver.as_ref().is_some_and(|driver| driver.will_wake(context.waker())) {
            moving.driver = Some(context.waker().clone());
        }
        moving.lane.is_some()
    }

    /// Lets the lane go on by itself.
    fn go_on(&self) {
        let mut moving = lock(&self.0);
        let (lane, driver) = (moving.lane.take(), moving.driver.take());
        drop(moving);
        if let (Some(lane), Ok(runtime)) = (lane, Handle::try_current()) {
            runtime.spawn(lane);
            // Whoever moved it so far waits for the answer from now on.
            driver.into_iter().for_each(Waker::wake);
        }
    }
}

/// Whoever moves a lane.
struct Driver(Ride);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// What a lane has on its way: a few calls, looked at in the order in which they were sent. Unlike a set of futures for many
/// it never wakes the one who looks, who would be put behind others.
pub(crate) struct Flights<F>(Vec<Pin<Box<F>>>);

impl<F: Future> Flights<F> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, flight: Pin<Box<F>>) {
        self.0.push(flight);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first one that has come back; none if nothing is on its way.
    pub(crate) async fn next(&mut self) -> Option<F::Output> {
        poll_fn(|context| {
            for place in 0..self.0.len() {
                if let Poll::Ready(landed) = self.0[place].as_mut().poll(context) {
                    drop(self.0.remove(place));
                    return Poll::Ready(Some(landed));
                }
            }
            if self.0.is_empty() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
