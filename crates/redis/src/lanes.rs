//! Lanes: who waits in a namespace, so that it goes on together. A lane is there while someone waits in it. Whoever comes
//! first moves it, as long as nobody else comes: a lone caller is answered without a change of hands. With the second it goes
//! on by itself, and also when the first one leaves.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

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

/// A lane as it moves; empty once it is over or has been taken from whoever moved it.
#[derive(Clone)]
struct Ride(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

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
            ride.0.poll(context);
            answer.as_mut().poll(context)
        })
        .await
        .ok()
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
        let ride = Ride(Arc::new(Mutex::new(Some(run(seats)))));
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
    fn poll(&self, context: &mut Context<'_>) {
        let mut lane = lock(&self.0);
        if lane.as_mut().is_some_and(|lane| lane.as_mut().poll(context) == Poll::Ready(())) {
            *lane = None;
        }
    }

    /// Lets the lane go on by itself.
    fn go_on(&self) {
        let lane = lock(&self.0).take();
        if let (Some(lane), Ok(runtime)) = (lane, Handle::try_current()) {
            runtime.spawn(lane);
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
