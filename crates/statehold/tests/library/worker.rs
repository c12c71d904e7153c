//! The worker: what becomes of a task whatever its handler, its store and its owner do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::flaky::Flaky;
use crate::common::{block_on, json, on_every_store, random, soon, story, tasks};
use statehold::core::model::Backoff;
use statehold::worker::{Failure, Job, Outcome, Report, Stop, Stopping, Worker};
use statehold::{Clock, Result, Seconds, Statehold, Status, Task, TaskCreate};
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);

/// A worker at work.
struct Running {
    stopping: Stopping,
    running: JoinHandle<Result<Report>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        let stopping = Stopping::new();
        Self { running: tokio::spawn(worker.run(stopping.clone())), stopping }
    }

    /// Tells it to stop, and waits for its end.
    async fn stop(self) -> Report {
        self.stopping.cancel();
        soon(self.running).await.unwrap().unwrap()
    }
}

/// A worker whose leases are short, but not so short that a busy machine loses them.
fn worker(hold: &Statehold) -> Worker {
    Worker::new(hold).lease(3 * SECOND)
}

async fn create(hold: &Statehold, kind: &str) -> Task {
    hold.tasks().create(TaskCreate::new(kind)).await.unwrap().task
}

async fn ended(hold: &Statehold, task: &Task) -> Task {
    soon(hold.tasks().wait(task.id, None)).await.unwrap()
}

async fn done(_: Job) -> Result<Outcome, Failure> {
    Ok(Outcome::Complete(None))
}

/// Works until it is told to stop, and fails.
async fn until_stopped(job: Job) -> Result<Outcome, Failure> {
    Err(Failure::new("stopped", job.stopped().await.to_string()))
}

#[test]
fn a_handler_is_chosen_by_the_kind() {
    on_every_store(async |hold, _| {
        let (a, b, c) = (create(&hold, "a").await, create(&hold, "b").await, create(&hold, "anything").await);
        let running = Running::start(
            worker(&hold)
                .handle("a", async |_| Ok(Outcome::Complete(Some(json("by a")))))
                .handle("b", async |_| Ok(Outcome::Complete(Some(json("by b")))))
                .handle_any(async |job| Ok(Outcome::Complete(Some(json(&job.task().kind))))),
        );
        assert_eq!(ended(&hold, &a).await.output, Some(json("by a")));
        assert_eq!(ended(&hold, &b).await.output, Some(json("by b")));
        assert_eq!(ended(&hold, &c).await.output, Some(json("anything")));
        let report = running.stop().await;
        assert_eq!(report, Report { claimed: 3, completed: 3, ..Report::default() });
    });
}

#[test]
fn a_task_of_an_unknown_kind_is_left_to_others_for_a_while() {
    on_every_store(async |hold, clock| {
        let task = create(&hold, "strange").await;
        let known = create(&hold, "known").await;
        let running = Running::start(worker(&hold).handle("known", done));
        ended(&hold, &known).await;
        let task = hold.tasks().wait_until(task.id, None, |task| task.attempt == 1 && task.lease.is_none());
        let task = soon(task).await.unwrap();
        assert_eq!((task.status, task.failures, task.lease_losses), (Status::Pending, 0, 0));
        assert!(task.run_at > clock.now() + Seconds::new(20), "others have time to take it");
        assert_eq!(running.stop().await.released, 1);
    });
}

#[test]
fn a_panic_fails_the_task_with_its_message_and_the_worker_goes_on() {
    on_every_store(async |hold, _| {
        let once = |kind: &str| TaskCreate { max_attempts: Some(1), ..TaskCreate::new(kind) };
        let late = hold.tasks().create(once("late")).await.unwrap().task;
        let early = hold.tasks().create(once("early")).await.unwrap().task;
        let good = create(&hold, "good").await;
        let running = Running::start(
            worker(&hold)
                .handle("late", async |job: Job| {
                    job.lease().renew().await?;
                    panic!("in the middle of {}", job.task().kind)
                })
                .handle("early", |_| -> std::future::Ready<_> { panic!("before it began") })
                .handle("good", done),
        );
        let error = ended(&hold, &late).await.error.unwrap();
        assert_eq!((error.code.as_deref(), error.message.as_str()), (Some("panic"), "in the middle of late"));
        let error = ended(&hold, &early).await.error.unwrap();
        assert_eq!((error.code.as_deref(), error.message.as_str()), (Some("panic"), "before it began"));
        assert_eq!(ended(&hold, &good).await.status, Status::Completed);
        let report = running.stop().await;
        assert_eq!((report.failed, report.completed), (2, 1));
    });
}

#[test]
fn an_error_is_tried_again_unless_it_is_permanent_or_about_the_request() {
    on_every_store(async |hold, _| {
        let backoff = Backoff { initial_seconds: Seconds::from_micros(1000), ..Backoff::default() };
        let again = TaskCreate { backoff: Some(backoff), ..TaskCreate::new("again") };
        let again = hold.tasks().create(again).await.unwrap().task;
        let never = create(&hold, "never").await;
        let large = create(&hold, "large").await;
        let running = Running::start(
            worker(&hold)
                .handle("again", async |job: Job| match job.task().attempt {
                    3 => Ok(Outcome::Complete(None)),
                    _ => Err(Failure::new("broken", "it broke")),
                })
                .handle("never", async |_| Err(Failure::permanent("broken", "it will always break")))
                .handle("large", async |_| Ok(Outcome::Complete(Some(json(&"x".repeat(2 << 20)))))),
        );
        let again = ended(&hold, &again).await;
        assert_eq!((again.status, again.attempt, again.failures), (Status::Completed, 3, 2));
        let never = ended(&hold, &never).await;
        assert_eq!((never.status, never.failures), (Status::Failed, 1));
        let large = ended(&hold, &large).await;
        assert_eq!(large.error.unwrap().code.as_deref(), Some("too_large"), "its output cannot be kept");
        running.stop().await;
    });
}

#[test]
fn a_handler_that_blocks_its_only_thread_keeps_its_lease() {
    let folder = crate::common::folder();
    let path = folder.path().join("state.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let rival_gives_up = Stopping::new();
    let (task, rival) = runtime.block_on(async {
        let hold = crate::common::open(&path).await;
        let task = create(&hold, "block").await;
        let (begun, begins) = mpsc::channel();
        let running = Running::start(worker(&hold).lease(SECOND).handle("block", move |_| {
            begun.send(()).unwrap();
            std::thread::sleep(3 * SECOND);
            std::future::ready(Ok(Outcome::Complete(None)))
        }));
        // Someone on other threads waits for the task, and would get it if its lease ended.
        let (rival_hold, gives_up) = (hold.clone(), rival_gives_up.clone());
        let rival = std::thread::spawn(move || {
            begins.recv().unwrap();
            block_on(async {
                let claim = rival_hold.tasks().claim_wait(&["default"], "rival", 1, crate::common::PATIENCE);
                gives_up.run_until_cancelled(claim).await.map(|leases| leases.unwrap().len())
            })
        });
        let task = ended(&hold, &task).await;
        running.stop().await;
        (task, rival)
    });
    rival_gives_up.cancel();
    assert_eq!(rival.join().unwrap(), None, "nobody else got it");
    assert_eq!((task.status, task.attempt, task.lease_losses), (Status::Completed, 1, 0));
}

#[test]
fn a_cancel_is_told_to_the_handler_and_a_completion_still_counts() {
    on_every_store(async |hold, _| {
        let (obeys, completes) = (create(&hold, "obeys").await, create(&hold, "completes").await);
        let running = Running::start(
            worker(&hold)
                .concurrency(2)
                .handle("obeys", async |job: Job| {
                    assert_eq!(job.stop(), None);
                    assert_eq!(job.stopped().await, Stop::CancelRequested);
                    Err(Failure::new("stopped", "as asked"))
                })
                .handle("completes", async |job: Job| {
                    assert_eq!(job.stopped().await, Stop::CancelRequested);
                    assert_eq!(job.stop(), Some(Stop::CancelRequested));
                    Ok(Outcome::Complete(None))
                }),
        );
        for task in [&obeys, &completes] {
            let started = hold.tasks().wait_until(task.id, None, |task| task.status == Status::Running);
            soon(started).await.unwrap();
            hold.tasks().cancel(task.id).await.unwrap();
        }
        assert_eq!(ended(&hold, &obeys).await.status, Status::Cancelled);
        assert_eq!(ended(&hold, &completes).await.status, Status::Completed);
        running.stop().await;
    });
}

#[test]
fn an_attempt_that_takes_too_long_is_ended_and_counts_as_one_failure() {
    on_every_store(async |hold, _| {
        for lease in [SECOND, 30 * SECOND] {
            let task = hold.tasks().create(TaskCreate::new("slow").timeout(SECOND)).await.unwrap().task;
            let stops = Arc::new(std::sync::Mutex::new(Vec::new()));
            let seen = Arc::clone(&stops);
            let running = Running::start(Worker::new(&hold).lease(lease).handle("slow", move |job: Job| {
                let seen = Arc::clone(&seen);
                async move {
                    if job.task().attempt > 1 {
                        return Ok(Outcome::Complete(None));
                    }
                    let stop = job.stopped().await;
                    seen.lock().unwrap().push(stop);
                    Err(Failure::new("stopped", stop.to_string()))
                }
            }));
            let task = ended(&hold, &task).await;
            assert_eq!((task.status, task.attempt), (Status::Completed, 2));
            assert_eq!((task.failures, task.lease_losses), (1, 0), "a failure, and not a lost lease");
            assert_eq!(*stops.lock().unwrap(), [Stop::TimedOut], "it is told why");
            let report = running.stop().await;
            assert_eq!((report.failed, report.completed), (1, 1));
        }
    });
}

#[test]
fn an_eviction_stops_the_handler_and_another_attempt_goes_on() {
    on_every_store(async |hold, _| {
        let task = create(&hold, "work").await;
        let running = Running::start(worker(&hold).handle("work", async |job: Job| {
            if job.task().attempt == 1 {
                assert_eq!(job.stopped().await, Stop::Fenced);
                assert!(job.lease().complete(None).await.unwrap_err().is_fenced());
            }
            Ok(Outcome::Complete(Some(json(&job.task().attempt))))
        }));
        let started = hold.tasks().wait_until(task.id, None, |task| task.status == Status::Running);
        soon(started).await.unwrap();
        hold.tasks().evict(task.id).await.unwrap();
        let task = ended(&hold, &task).await;
        assert_eq!((task.output, task.failures, task.lease_losses), (Some(json(&2)), 0, 0));
        let report = running.stop().await;
        assert_eq!((report.claimed, report.completed, report.lost), (2, 1, 1));
    });
}

#[test]
fn a_worker_that_is_told_to_stop_lets_its_handlers_end() {
    on_every_store(async |hold, _| {
        let tasks = [create(&hold, "work").await, create(&hold, "work").await];
        let waiting = create(&hold, "work").await;
        let begun = Arc::new(Barrier::new(3));
        let at_work = Arc::clone(&begun);
        let running = Running::start(worker(&hold).concurrency(2).handle("work", move |job: Job| {
            let at_work = Arc::clone(&at_work);
            async move {
                at_work.wait().await;
                tokio::time::sleep(SECOND / 2).await;
                assert_eq!(job.stop(), None, "within its grace nobody is told to stop");
                Ok(Outcome::Complete(None))
            }
        }));
        soon(begun.wait()).await;
        let report = running.stop().await;
        assert_eq!(report, Report { claimed: 2, completed: 2, ..Report::default() });
        for task in tasks {
            assert_eq!(hold.tasks().get(task.id).await.unwrap().unwrap().status, Status::Completed);
        }
        let waiting = hold.tasks().get(waiting.id).await.unwrap().unwrap();
        assert_eq!((waiting.status, waiting.attempt), (Status::Pending, 0), "nothing is taken any more");
    });
}

#[test]
fn what_does_not_end_within_the_grace_goes_back_also_if_it_cannot_be_stopped() {
    on_every_store(async |hold, _| {
        let kinds = ["obeys", "sleeps", "blocks"];
        for kind in kinds {
            create(&hold, kind).await;
        }
        let begun = Arc::new(Barrier::new(4));
        let (go_on, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(std::sync::Mutex::new(blocked));
        let at_work = Arc::clone(&begun);
        let worker = worker(&hold).concurrency(3).grace(SECOND / 10).handle_any(move |job: Job| {
            let (at_work, blocked) = (Arc::clone(&at_work), Arc::clone(&blocked));
            async move {
                at_work.wait().await;
                match job.task().kind.as_str() {
                    "obeys" => {
                        assert_eq!(job.stopped().await, Stop::ShuttingDown);
                        Err(Failure::new("stopped", "as asked"))
                    }
                    "sleeps" => std::future::pending().await,
                    // It blocks until the worker has ended.
                    _ => {
                        let _ = blocked.lock().unwrap().recv();
                        Ok(Outcome::Complete(Some(json("too late"))))
                    }
                }
            }
        });
        let running = Running::start(worker);
        soon(begun.wait()).await;
        let report = running.stop().await;
        assert_eq!(report, Report { claimed: 3, released: 3, ..Report::default() });
        for task in tasks(&hold).await {
            assert_eq!((task.status, task.failures, task.lease_losses), (Status::Pending, 0, 0), "{task:?}");
            assert_eq!(story(&hold, &task).await.last().unwrap(), "task.released");
        }
        drop(go_on);
    });
}

#[test]
fn a_worker_until_empty_does_all_there_is_and_ends_by_itself() {
    on_every_store(async |hold, _| {
        for _ in 0..20 {
            create(&hold, "parent").await;
        }
        let worker = worker(&hold)
            .concurrency(3)
            .until_empty()
            .handle("parent", async |job: Job| {
                tokio::time::sleep(Duration::from_millis(random(10))).await;
                job.lease().dispatch(TaskCreate::new("child").child_key("one")).await?;
                Ok(Outcome::Complete(None))
            })
            .handle("child", done);
        let report = soon(worker.run(Stopping::new())).await.unwrap();
        assert_eq!(report, Report { claimed: 40, completed: 40, ..Report::default() });

        // Also then it can be stopped.
        create(&hold, "endless").await;
        let worker = self::worker(&hold).until_empty().concurrency(2).grace(Duration::ZERO);
        let running = Running::start(worker.handle("endless", until_stopped));
        tokio::time::sleep(SECOND / 10).await;
        assert_eq!(running.stop().await.released, 1);
    });
}

#[test]
fn as_many_tasks_as_allowed_are_worked_on_at_once_and_never_more() {
    on_every_store(async |hold, _| {
        const MOST: usize = 4;
        for _ in 0..10 * MOST {
            create(&hold, "work").await;
        }
        let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // Handlers go on by fours: with fewer at work, all would wait forever.
        let four = Arc::new(Barrier::new(MOST));
        let (at_work, highest) = (Arc::clone(&now), Arc::clone(&peak));
        let worker = worker(&hold).concurrency(4).until_empty().handle("work", move |_| {
            let (at_work, highest, four) = (Arc::clone(&at_work), Arc::clone(&highest), Arc::clone(&four));
            async move {
                highest.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                four.wait().await;
                tokio::time::sleep(Duration::from_millis(random(10))).await;
                at_work.fetch_sub(1, Ordering::SeqCst);
                Ok(Outcome::Complete(None))
            }
        });
        let report = soon(worker.run(Stopping::new())).await.unwrap();
        assert_eq!(report.completed, 10 * MOST as u64);
        assert_eq!((peak.load(Ordering::SeqCst), now.load(Ordering::SeqCst)), (MOST, 0));
    });
}

#[test]
fn a_worker_that_has_ended_holds_nothing_and_takes_nothing() {
    on_every_store(async |hold, _| {
        for _ in 0..50 {
            let task = create(&hold, "work").await;
            let running = Running::start(Worker::new(&hold).concurrency(2).handle("work", done));
            for _ in 0..random(20) {
                tokio::task::yield_now().await;
            }
            std::thread::sleep(Duration::from_micros(random(500)));
            running.stop().await;
            let late = create(&hold, "work").await;
            let task = hold.tasks().get(task.id).await.unwrap().unwrap();
            assert_ne!(task.status, Status::Running, "it is done, or it was given back");
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert_eq!(hold.tasks().get(late.id).await.unwrap().unwrap().attempt, 0);
            for task in [task, late] {
                if !task.status.is_terminal() {
                    hold.tasks().cancel(task.id).await.unwrap();
                }
            }
        }
    });
}

#[test]
fn a_task_that_is_released_for_a_while_stays_away_however_long_it_was_worked_on() {
    on_every_store(async |hold, clock| {
        let task = create(&hold, "later").await;
        let running = Running::start(worker(&hold).handle("later", async |_| {
            // Meanwhile its lease is renewed.
            tokio::time::sleep(3 * SECOND / 2).await;
            Ok(Outcome::Release(60 * SECOND))
        }));
        let task = hold.tasks().wait_until(task.id, None, |task| task.attempt == 1 && task.lease.is_none());
        let task = soon(task).await.unwrap();
        assert!(task.run_at > task.updated_at + Seconds::new(59), "{} is too soon", task.run_at);
        assert!(task.run_at < clock.now() + Seconds::new(70), "{} is too late", task.run_at);
        running.stop().await;
    });
}

#[test]
fn a_store_that_is_away_for_a_while_does_not_end_the_worker() {
    let store = Arc::new(Flaky::new(Clock::real(), 0));
    let hold = Statehold::on(store.clone());
    block_on(async {
        let running = Running::start(worker(&hold).handle("work", done));
        let before = create(&hold, "work").await;
        assert_eq!(ended(&hold, &before).await.status, Status::Completed);
        store.set_down(true);
        // More failures than one claim tries.
        let (calls, _) = store.troubles();
        let woken = async {
            while store.troubles().0 < calls + 8 {
                hold.backend().register("default", &[]).await.unwrap();
                tokio::time::sleep(SECOND / 20).await;
            }
        };
        soon(woken).await;
        assert!(!running.running.is_finished(), "it goes on trying");
        store.set_down(false);
        let after = create(&hold, "work").await;
        assert_eq!(ended(&hold, &after).await.status, Status::Completed);
        assert_eq!(running.stop().await.completed, 2);
    });
}

#[test]
fn a_lease_that_cannot_be_renewed_stops_the_handler_by_its_own_clock() {
    let store = Arc::new(Flaky::new(Clock::real(), 0));
    let hold = Statehold::on(store.clone());
    block_on(async {
        let task = create(&hold, "work").await;
        let running = Running::start(worker(&hold).handle("work", async |job: Job| {
            if job.task().attempt == 1 {
                let stop = job.stopped().await;
                assert_eq!(stop, Stop::LeaseOver);
                return Err(Failure::new("stopped", stop.to_string()));
            }
            Ok(Outcome::Complete(None))
        }));
        let started = hold.tasks().wait_until(task.id, None, |task| task.status == Status::Running);
        soon(started).await.unwrap();
        store.set_down(true);
        let over = async {
            while store.troubles().0 < 8 {
                tokio::time::sleep(SECOND / 10).await;
            }
        };
        soon(over).await;
        tokio::time::sleep(3 * SECOND).await;
        store.set_down(false);
        let task = ended(&hold, &task).await;
        assert_eq!((task.status, task.attempt, task.failures), (Status::Completed, 2, 0));
        assert_eq!(running.stop().await.lost, 1);
    });
}

#[test]
fn a_worker_that_is_dropped_takes_its_handlers_with_it() {
    /// Notes its end.
    struct Noting(Arc<AtomicBool>);
    impl Drop for Noting {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    on_every_store(async |hold, _| {
        create(&hold, "work").await;
        let (begun, ended) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
        let (at_work, note) = (Arc::clone(&begun), Arc::clone(&ended));
        let running = Running::start(worker(&hold).handle("work", move |_| {
            let (at_work, noting) = (Arc::clone(&at_work), Noting(Arc::clone(&note)));
            async move {
                let _noting = noting;
                at_work.wait().await;
                std::future::pending().await
            }
        }));
        soon(begun.wait()).await;
        running.running.abort();
        while !ended.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}
