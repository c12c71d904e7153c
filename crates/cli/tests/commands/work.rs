//! `statehold work` with programs that behave, and with programs that do not: each is bounded and explained, and
//! nothing stays stuck or running.

use std::fs;
use std::time::Duration;

use crate::programs::{Place, eventually, send};
use rustix::process::Signal;
use statehold::core::query::TaskList;
use statehold::{Json, Seconds, Status, Task, TaskCreate, TaskError};

/// A task that is tried once.
fn once(kind: &str) -> TaskCreate {
    TaskCreate { max_attempts: Some(1), ..TaskCreate::new(kind) }
}

/// Works on one task until nothing is left to do, and answers what became of it and what was said.
async fn work_on(place: &Place, task: TaskCreate, options: &[&str], script: &str) -> (Task, String) {
    let id = place.create(task).await;
    let mut all = vec!["--until-empty"];
    all.extend(options);
    let ran = place.work(&all, script).ended_well().await;
    place.assert_nothing_left().await;
    (place.task(id).await, ran.err)
}

fn error(task: &Task) -> &TaskError {
    task.error.as_ref().expect("an error")
}

fn stderr_of(task: &Task) -> String {
    let details: serde_json::Value = error(task).details.as_ref().expect("details").to().expect("JSON");
    details["stderr"].as_str().expect("stderr").to_owned()
}

#[tokio::test]
async fn input_comes_on_stdin_and_output_goes_from_stdout() {
    let place = Place::new().await;
    let task = once("double").input(Json::parse(r#"{"n": 12345678901234567890}"#).expect("JSON"));
    let (task, said) = work_on(&place, task, &[], "cat").await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(task.output.as_ref().map(Json::as_str), Some(r#"{"n":12345678901234567890}"#));
    assert!(said.contains(&format!("{} started: double, attempt 1", task.id)), "{said}");
    assert!(said.contains(&format!("{} completed in ", task.id)), "{said}");
}

#[tokio::test]
async fn output_that_is_no_json_becomes_text() {
    let place = Place::new().await;
    let (task, _) = work_on(&place, once("a"), &[], "echo hello; echo you").await;
    assert_eq!(task.output.as_ref().map(Json::as_str), Some(r#""hello\nyou""#));
    let (task, _) = work_on(&place, once("a"), &[], "true").await;
    assert_eq!((task.status, task.output), (Status::Completed, None));
}

#[tokio::test]
async fn a_program_finds_its_task_and_store_in_the_environment() {
    let place = Place::new().await;
    let script = r#"cd / && echo "$STATEHOLD_TASK_KIND $STATEHOLD_TASK_QUEUE $STATEHOLD_TASK_ATTEMPT $STATEHOLD_NAMESPACE
$STATEHOLD_TASK_ID $STATEHOLD_TASK_TOKEN $STATEHOLD_STORE""#;
    let (task, _) = work_on(&place, once("mail").queue("out"), &["--queue", "out"], script).await;
    let output: String = task.output.expect("an output").to().expect("text");
    let (first, second) = output.split_once('\n').expect("two lines");
    assert_eq!(first, "mail out 1 default");
    let [id, token, store] = second.split(' ').collect::<Vec<_>>()[..] else { panic!("{second}") };
    assert_eq!(id, task.id.to_string());
    assert!(token.parse::<i64>().is_ok_and(|token| token > 0), "{token}");
    assert_eq!(store, format!("sqlite:{}", place.file("state.db").display()));
}

#[tokio::test]
async fn exit_codes_decide() {
    let place = Place::new().await;
    let (task, said) = work_on(&place, once("a"), &[], "echo working >&2; echo broken >&2; exit 3").await;
    assert_eq!(task.status, Status::Failed);
    assert_eq!(error(&task).code.as_deref(), Some("exit"));
    assert_eq!(error(&task).message, "the program exited with code 3: broken");
    assert_eq!(stderr_of(&task), "working\nbroken\n");
    assert!(said.contains(&format!("{} | working\n{} | broken\n", task.id, task.id)), "{said}");

    let (task, said) = work_on(&place, TaskCreate::new("a"), &[], "exit 3").await;
    assert_eq!((task.status, task.failures), (Status::Pending, 1), "another try may fare better");
    assert!(said.contains("it will be tried again"), "{said}");
    place.hold.tasks().cancel(task.id).await.expect("it ends");

    let (task, _) = work_on(&place, TaskCreate::new("a"), &[], "exit 65").await;
    assert_eq!((task.status, task.failures), (Status::Failed, 1), "bad data stays bad");
    let (task, _) = work_on(&place, TaskCreate::new("a"), &["--permanent", "9"], "exit 9").await;
    assert_eq!((task.status, task.failures), (Status::Failed, 1));

    let (task, said) = work_on(&place, TaskCreate::new("a"), &["--delay", "1h"], "exit 75").await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0), "it counts for nothing");
    assert!(task.run_at.since(task.created_at) > Seconds::new(3000), "{task:?}");
    assert!(said.contains("given back"), "{said}");
}

#[tokio::test]
async fn a_program_that_a_signal_kills_fails_with_its_name() {
    let place = Place::new().await;
    let (task, _) = work_on(&place, once("a"), &[], "kill -SEGV $$").await;
    assert_eq!(error(&task).code.as_deref(), Some("signal"));
    assert_eq!(error(&task).message, "the program was killed by SIGSEGV");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_before_anything_is_claimed() {
    let place = Place::new().await;
    let id = place.create(TaskCreate::new("a")).await;
    fs::write(place.file("text"), "no program").expect("a file");
    for (program, why) in [("no-such-program", "is not there"), ("./text", "is not executable")] {
        let ran = place.start(&["work", "--until-empty", "--", program]).ended().await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(why) && ran.err.contains("hint:"), "{ran:?}");
    }
    assert_eq!(place.task(id).await.attempt, 0);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_ends_the_worker_and_costs_the_task_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new().await;
    let id = place.create(once("a")).await;
    // Executable, but the interpreter that it names is not there.
    fs::write(place.file("script"), "#!/no/such/interpreter\n").expect("a file");
    fs::set_permissions(place.file("script"), fs::Permissions::from_mode(0o755)).expect("it can be run");
    let ran = place.start(&["work", "--", "./script"]).ended().await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("cannot be started"), "{ran:?}");
    let task = place.task(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
}

#[tokio::test]
async fn a_grandchild_that_holds_the_output_open_is_not_waited_for_and_killed() {
    let place = Place::new().await;
    let (task, _) = work_on(&place, once("a"), &[], "sleep 1000 & echo done").await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(task.output.as_ref().map(Json::as_str), Some(r#""done""#));
}

#[tokio::test]
async fn a_process_that_leaves_the_group_is_not_waited_for() {
    let place = Place::new().await;
    let id = place.create(once("a")).await;
    let script = "setsid sh -c 'echo $$ > escaped; exec sleep 1000' & while ! [ -s escaped ]; do sleep 0.1; done; echo done";
    place.work(&["--until-empty"], script).ended_well().await;
    assert_eq!(place.task(id).await.status, Status::Completed);
    let escaped =
        fs::read_to_string(place.file("escaped")).expect("its id").trim().parse().expect("a number");
    assert!(place.left().iter().any(|(pid, _)| pid.cast_unsigned() == escaped), "it has escaped");
    send(escaped, Signal::KILL);
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn garbage_becomes_text() {
    let place = Place::new().await;
    let script = r"head -c 100000 /dev/urandom; head -c 1000 /dev/urandom >&2; head -c 1000 /dev/urandom >&3; printf '\0'";
    let (task, _) = work_on(&place, once("a"), &[], script).await;
    assert_eq!(task.status, Status::Completed, "{:?}", task.error);
    assert!(task.output.is_some_and(|output| output.as_str().starts_with('"') && output.size() > 100_000));
}

#[tokio::test]
async fn a_program_may_close_its_output_and_go_on() {
    let place = Place::new().await;
    let (task, _) =
        work_on(&place, once("a"), &[], "echo 1; exec >&- 2>&- 3>&- <&-; sleep 0.3; exit 0").await;
    assert_eq!((task.status, task.output), (Status::Completed, Some(Json::parse("1").expect("JSON"))));
}

#[tokio::test]
async fn an_output_that_is_too_large_fails_for_good_and_the_program_is_stopped() {
    let place = Place::new().await;
    // Both a hundred megabytes, and one that would never end.
    for script in ["head -c 100000000 /dev/zero; touch finished", "yes"] {
        let (task, said) = work_on(&place, TaskCreate::new("a"), &["--kill-after", "1s"], script).await;
        assert_eq!((task.status, task.failures), (Status::Failed, 1), "{script}");
        assert_eq!(error(&task).code.as_deref(), Some("output_too_large"), "{script}");
        assert!(said.contains("printed more than 1048576 bytes"), "{script}: {said}");
        assert!(!place.file("finished").exists(), "it was let go on for nothing");
    }
    // As text it is longer than it was printed.
    let (task, _) = work_on(&place, once("a"), &[], r"yes '\' | head -c 1000000").await;
    assert_eq!(error(&task).code.as_deref(), Some("output_too_large"));
}

#[tokio::test]
async fn the_largest_output_is_kept() {
    let place = Place::new().await;
    let (task, _) = work_on(&place, once("a"), &[], "head -c 1048574 /dev/zero | tr '\\0' x").await;
    assert_eq!(task.output.map(|output| output.size()), Some(1 << 20), "{:?}", task.error);
}

#[tokio::test]
async fn a_program_need_not_read_its_input() {
    let place = Place::new().await;
    let input = Json::of(&"x".repeat(1_000_000)).expect("JSON");
    for script in ["exit 0", "exec <&-; sleep 0.3", "sleep 0.3"] {
        let (task, _) = work_on(&place, once("a").input(input.clone()), &[], script).await;
        assert_eq!(task.status, Status::Completed, "{script}: {:?}", task.error);
    }
}

#[tokio::test]
async fn stderr_is_bounded_and_its_end_is_kept() {
    let place = Place::new().await;
    let script = "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the end >&2; exit 1";
    let (task, said) = work_on(&place, once("a"), &[], script).await;
    assert!(stderr_of(&task).len() <= 4096 + "…".len() && stderr_of(&task).ends_with("the end\n"));
    assert!(said.len() < 10_000, "{} bytes", said.len());
}

#[tokio::test]
async fn lines_on_the_third_pipe_become_events_in_order() {
    let place = Place::new().await;
    let script =
        r#"echo '{"type": "step", "data": {"n": 1}}' >&3; echo hello >&3; echo '{"type": "end"}' >&3"#;
    let (task, _) = work_on(&place, once("a"), &[], script).await;
    let events: Vec<_> = place
        .events(task.id)
        .await
        .into_iter()
        .map(|(kind, data)| (kind, data.map(|d| d.as_str().to_owned())))
        .collect();
    let own: Vec<_> = events.iter().filter(|(kind, _)| !kind.starts_with("task.")).cloned().collect();
    let expected = [("step", Some(r#"{"n":1}"#)), ("log", Some(r#""hello""#)), ("end", None)];
    assert_eq!(own, expected.map(|(kind, data)| (kind.to_owned(), data.map(str::to_owned))));
    assert_eq!(
        events.last().map(|(kind, _)| kind.as_str()),
        Some("task.completed"),
        "all of them came before the end"
    );
}

#[tokio::test]
async fn a_flood_of_events_is_written_without_loss_and_in_order() {
    let place = Place::new().await;
    let script = r#"seq 1 100000 | sed 's/.*/{"type":"n","data":&}/' >&3"#;
    let (task, _) = work_on(&place, once("a"), &[], script).await;
    assert_eq!(task.status, Status::Completed, "{:?}", task.error);
    let events = place.events(task.id).await.into_iter().filter(|(kind, _)| kind == "n");
    let numbers: Vec<u32> = events.map(|(_, data)| data.expect("data").to().expect("a number")).collect();
    assert!(numbers.iter().copied().eq(1..=100_000), "{} events", numbers.len());
}

#[tokio::test]
async fn a_flood_without_end_ends_with_its_task() {
    let place = Place::new().await;
    let id = place.create(once("a").timeout(2)).await;
    let worker =
        place.work(&["--kill-after", "300ms"], "trap '' TERM; yes '{\"type\":\"n\"}' >&3; sleep 1000");
    let task = place.until(id, "ended", |task| task.status.is_terminal()).await;
    assert_eq!(error(&task).code.as_deref(), Some("timeout"));
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    place.assert_nothing_left().await;
    let events = place.events(id).await;
    let ended = events.iter().position(|(kind, _)| kind == "task.failed").expect("it failed");
    assert!(events[..ended].iter().any(|(kind, _)| kind == "n"));
    assert_eq!(events.len(), ended + 1, "nothing was written after its end");
}

#[tokio::test]
async fn commands_inside_a_program_find_its_task() {
    let place = Place::new().await;
    let binary = env!("CARGO_BIN_EXE_statehold");
    // Which task, which token and which store is in the environment.
    let script = format!(r#"cd / && {binary} task complete --result '"by itself"' >&2"#);
    let (task, said) = work_on(&place, once("a"), &[], &script).await;
    assert_eq!(task.status, Status::Completed, "{said}");
    assert_eq!(task.output, Some(Json::of("by itself").expect("JSON")), "{said}");
}

#[tokio::test]
async fn a_store_that_nobody_shares_is_refused() {
    let place = Place::new().await;
    let ran = place.start(&["work", "--store", "memory:", "--", "true"]).ended().await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("nothing to work on") && ran.err.contains("hint:"), "{ran:?}");
}

#[tokio::test]
async fn a_cancelled_program_is_stopped_and_its_exit_code_does_not_count() {
    let place = Place::new().await;
    let id = place.create(TaskCreate::new("a")).await;
    let script = "trap 'echo asked to stop >&2; exit 0' TERM; touch ready; while :; do sleep 0.1; done";
    let worker = place.work(&["--lease", "1s"], script);
    eventually("the program runs", || place.file("ready").exists()).await;
    place.hold.tasks().cancel(id).await.expect("it is asked");
    let task = place.until(id, "ended", |task| task.status.is_terminal()).await;
    assert_eq!(task.status, Status::Cancelled);
    worker.signal(Signal::TERM);
    let ran = worker.ended_well().await;
    assert!(ran.err.contains("| asked to stop") && ran.err.contains("it is cancelled"), "{ran:?}");
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_with_all_it_started() {
    let place = Place::new().await;
    let id = place.create(TaskCreate::new("a")).await;
    let script = "trap '' TERM; (trap '' TERM; sleep 1000) & touch ready; while :; do sleep 0.1; done";
    let worker = place.work(&["--lease", "1s", "--kill-after", "300ms"], script);
    eventually("the program runs", || place.file("ready").exists()).await;
    place.hold.tasks().cancel(id).await.expect("it is asked");
    let task = place.until(id, "ended", |task| task.status.is_terminal()).await;
    assert_eq!(task.status, Status::Cancelled);
    worker.signal(Signal::TERM);
    let ran = worker.ended_well().await;
    assert!(ran.err.contains("it is cancelled"), "{ran:?}");
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_whose_task_is_taken_away_is_stopped_and_writes_no_more() {
    let place = Place::new().await;
    let id = place.create(TaskCreate::new("a")).await;
    let script = r#"trap '' PIPE; if [ "$STATEHOLD_TASK_ATTEMPT" = 1 ]; then touch ready
        while :; do echo '{"type": "tick"}' >&3; sleep 0.1; done; fi; echo second"#;
    let worker = place.work(&["--lease", "10m", "--kill-after", "1s"], script);
    eventually("the program runs", || place.file("ready").exists()).await;
    place.hold.tasks().evict(id).await.expect("it is taken away");
    // Its lease is long: it is the refused event that tells.
    let task = place.until(id, "completed", |task| task.status == Status::Completed).await;
    assert_eq!(task.output, Some(Json::of("second").expect("JSON")));
    worker.signal(Signal::TERM);
    let ran = worker.ended_well().await;
    assert!(ran.err.contains("it was taken away"), "{ran:?}");
    let events = place.events(id).await;
    let evicted = events.iter().position(|(kind, _)| kind == "task.evicted").expect("it was evicted");
    assert!(events[evicted..].iter().all(|(kind, _)| kind != "tick"), "{events:?}");
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_silent_program_whose_task_is_taken_away_is_stopped_at_the_next_renewal() {
    let place = Place::new().await;
    let id = place.create(TaskCreate::new("a")).await;
    let script = r#"[ "$STATEHOLD_TASK_ATTEMPT" = 1 ] || exit 0; touch ready; exec sleep 1000"#;
    let worker = place.work(&["--lease", "1s"], script);
    eventually("the program runs", || place.file("ready").exists()).await;
    place.hold.tasks().evict(id).await.expect("it is taken away");
    place.until(id, "completed", |task| task.status == Status::Completed).await;
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_that_takes_longer_than_the_task_allows_is_stopped() {
    let place = Place::new().await;
    let id = place.create(once("a").timeout(1)).await;
    let worker = place.work(&["--kill-after", "300ms"], "trap '' TERM; sleep 1000 & wait; sleep 1000");
    let task = place.until(id, "ended", |task| task.status.is_terminal()).await;
    assert_eq!((task.status, error(&task).code.as_deref()), (Status::Failed, Some("timeout")));
    worker.signal(Signal::TERM);
    let ran = worker.ended_well().await;
    assert!(ran.err.contains("took longer than the task allows"), "{ran:?}");
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn sigterm_drains_what_runs_ends_well_and_nothing_more_is_claimed() {
    let place = Place::new().await;
    for _ in 0..3 {
        place.create(once("a")).await;
    }
    let worker = place.work(&[], "touch ready; while ! [ -e go ]; do sleep 0.1; done; echo done");
    eventually("the program runs", || place.file("ready").exists()).await;
    worker.signal(Signal::TERM);
    eventually("it says that it ends", || worker.said().contains("ending")).await;
    fs::write(place.file("go"), "").expect("a file");
    worker.ended_well().await;
    let tasks = place.hold.tasks().list(&TaskList::default()).await.expect("a list").items;
    let mut statuses: Vec<_> = tasks.iter().map(|task| task.status).collect();
    statuses.sort_by_key(|status| status.as_str());
    assert_eq!(statuses, [Status::Completed, Status::Pending, Status::Pending]);
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn when_the_grace_period_is_over_programs_are_stopped_and_their_tasks_go_back() {
    let place = Place::new().await;
    let id = place.create(once("a")).await;
    let worker = place.work(
        &["--grace", "200ms", "--kill-after", "200ms", "--until-empty"],
        "trap '' TERM; touch ready; while :; do sleep 1; done",
    );
    eventually("the program runs", || place.file("ready").exists()).await;
    worker.signal(Signal::INT);
    let ran = worker.ended_well().await;
    assert!(ran.err.contains("given back"), "{ran:?}");
    let task = place.task(id).await;
    assert_eq!((task.status, task.failures), (Status::Pending, 0));
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_second_signal_ends_at_once_and_leaves_no_program() {
    let place = Place::new().await;
    place.create(once("a")).await;
    let worker =
        place.work(&["--grace", "1h"], "trap '' TERM; (sleep 1000) & touch ready; while :; do sleep 1; done");
    eventually("the program runs", || place.file("ready").exists()).await;
    worker.signal(Signal::TERM);
    eventually("it says that it ends", || worker.said().contains("ending")).await;
    worker.signal(Signal::TERM);
    let ran = worker.ended().await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn several_programs_run_at_once_but_no_more_than_said() {
    let place = Place::new().await;
    for _ in 0..8 {
        place.create(once("a")).await;
    }
    let script = "mkdir r$$; ls -d r* | wc -l >> seen; sleep 0.3; rmdir r$$";
    place.work(&["--until-empty", "--concurrency", "3"], script).ended_well().await;
    let seen = fs::read_to_string(place.file("seen")).expect("numbers");
    let seen: Vec<u32> = seen.lines().map(|line| line.trim().parse().expect("a number")).collect();
    assert_eq!((seen.len(), seen.iter().max()), (8, Some(&3)), "{seen:?}");
}

#[tokio::test]
async fn other_kinds_are_left_to_others() {
    let place = Place::new().await;
    let other = place.create(once("other")).await;
    let (task, _) = work_on(&place, once("mine"), &["--kind", "mine"], "true").await;
    assert_eq!(task.status, Status::Completed);
    let other = place.task(other).await;
    assert_eq!((other.status, other.failures), (Status::Pending, 0));
}

#[tokio::test]
async fn programs_can_follow_it_by_lines_of_json() {
    let place = Place::new().await;
    let good = place.create(once("good")).await;
    let bad = place.create(once("bad")).await;
    let ran =
        place.work(&["--until-empty", "-o", "json"], "[ $STATEHOLD_TASK_KIND = good ]").ended_well().await;
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told: Vec<_> = lines.iter().map(|line| (line["task"].as_str(), line["event"].as_str())).collect();
    let (good, bad) = (good.to_string(), bad.to_string());
    let expected = [(&good, "started"), (&good, "completed"), (&bad, "started"), (&bad, "failed")];
    assert_eq!(told, expected.map(|(task, event)| (Some(task.as_str()), Some(event))));
    assert_eq!(
        (lines[3]["status"].as_str(), lines[3]["error"]["code"].as_str()),
        (Some("failed"), Some("exit"))
    );
    assert!(lines[1]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
}

#[tokio::test]
async fn a_worker_that_is_killed_is_succeeded_by_another() {
    let place = Place::new().await;
    let id = place.create(once("a")).await;
    let script = r#"[ "$STATEHOLD_TASK_ATTEMPT" = 1 ] || exit 0; touch ready; exec sleep 1000"#;
    let killed = place.work(&["--lease", "1s"], script);
    eventually("the program runs", || place.file("ready").exists()).await;
    killed.signal(Signal::KILL);
    assert_eq!(killed.ended().await.signal, Some(9));
    let worker = place.work(&["--lease", "1s"], script);
    let task = place.until(id, "completed", |task| task.status == Status::Completed).await;
    assert_eq!((task.attempt, task.lease_losses), (2, 1));
    worker.signal(Signal::TERM);
    worker.ended_well().await;
    // Whoever kills a worker like that leaves its program to itself.
    for (pid, _) in place.left() {
        send(pid.cast_unsigned(), Signal::KILL);
    }
    tokio::time::timeout(Duration::from_secs(60), place.assert_nothing_left()).await.expect("it is gone");
}
