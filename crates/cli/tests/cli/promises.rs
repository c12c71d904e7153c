//! What the command promises to all: exit codes, colours, pipes, tokens, examples, and a reference that is true.

use std::path::Path;

use crate::harness::{Cli, text};

#[test]
fn every_exit_code_means_what_the_help_says() {
    let cli = Cli::new();
    cli.good("statehold task create a --id 00000000-0000-7000-8000-000000000001");
    cli.good("statehold task create b --id 00000000-0000-7000-8000-000000000002");
    cli.good("statehold task cancel 00000000-0000-7000-8000-000000000002");
    let one = "00000000-0000-7000-8000-000000000001";
    for (code, line) in [
        (0, "statehold task list".to_owned()),
        (1, "head -c 9999 /dev/zero > no.db; statehold task list --store sqlite:no.db".to_owned()),
        (1, "statehold task list > /dev/full".to_owned()),
        (2, "statehold task list --store nonsense".to_owned()),
        (2, "statehold task list --nonsense".to_owned()),
        (3, "statehold doc get project 1".to_owned()),
        (4, format!("statehold task retry {one}")),
        (5, format!("statehold task complete {one} --token 1")),
        (6, format!("statehold task wait {one} --timeout 1ms")),
        (7, "statehold task wait 00000000-0000-7000-8000-000000000002".to_owned()),
        (7, "statehold task watch 00000000-0000-7000-8000-000000000002".to_owned()),
    ] {
        let output = cli.shell(&line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        assert_eq!(output.stderr.is_empty(), matches!(code, 0 | 7), "{line}: {output:?}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let cli = Cli::new();
    cli.good("for n in 1 2 3 4 5 6; do statehold stream append run/7 step --data $n; done");
    for line in [
        "statehold stream tail run/7 --from-start | head -n 1",
        "statehold stream read run/7 -o json | head -n 1",
        "statehold dump | head -n 1",
        "statehold completions bash | head -n 1",
    ] {
        // A tail notices at the next event that nobody reads any more.
        let more = "while [ ! -e done ]; do statehold stream append run/7 more > appended; sleep 0.1; done";
        let output = cli.shell(&format!("rm -f done; ({more}) & {line}; touch done; wait"));
        assert_eq!(text(&output.stderr), "", "{line}");
        assert_eq!(text(&output.stdout).lines().count(), 1, "{line}");
    }
}

#[test]
fn colours_are_for_terminals_and_for_those_who_force_them() {
    let cli = Cli::new();
    cli.good("statehold task create a");
    let coloured = |line: &str| {
        let output = cli.shell(line);
        [output.stdout, output.stderr].concat().contains(&0x1b)
    };
    for line in ["statehold task list", "statehold task show nonsense", "statehold doc get a b"] {
        assert!(!coloured(line), "{line}");
        assert!(coloured(&format!("CLICOLOR_FORCE=1 {line}")), "{line}");
        assert!(!coloured(&format!("NO_COLOR=1 {line}")), "{line}");
    }
    assert!(!coloured("CLICOLOR_FORCE=1 statehold task list -o json"));
}

#[test]
fn what_others_wrote_cannot_command_a_terminal() {
    let cli = Cli::new();
    let one = "00000000-0000-7000-8000-000000000001";
    cli.good(&format!("statehold task create a --id {one} --label \"x=$(printf '\\033[2J')\""));
    cli.good(&format!("statehold task start {one}"));
    cli.good(&format!(
        "statehold task fail {one} --token $(token {one}) --no-retry --error \"$(printf 'a\\033[2Jb\\nc')\""
    ));
    cli.good("statehold thread say 42 user \"$(printf '\\033]0;title\\007')\"");
    for line in [
        "statehold task list".to_owned(),
        format!("statehold task show {one}"),
        "statehold thread messages 42".to_owned(),
        "statehold stream read thread/42".to_owned(),
    ] {
        // With colours, since a pipe is given no escapes at all.
        let seen = cli.good(&format!("CLICOLOR_FORCE=1 {line}"));
        let commands = ["\u{1b}[2J", "\u{1b}]0;", "\u{7}"];
        assert!(!commands.iter().any(|command| seen.contains(command)), "{line}: {seen:?}");
        assert!(seen.contains(r"\u{1b}") || seen.contains(r"\u001b"), "{line}: {seen:?}");
    }
}

#[test]
fn only_holders_see_tokens() {
    let cli = Cli::new();
    let one = "00000000-0000-7000-8000-000000000001";
    cli.good(&format!("statehold task create a --id {one} -k key"));
    cli.good(&format!("statehold task start {one} --lease 10m"));
    cli.good("statehold lock acquire k --ttl 10m");
    let (task, lock) = (cli.good(&format!("token {one}")), cli.good("lock_token k"));
    assert!(task.trim().len() == 16 && lock.trim().len() == 16, "{task}{lock}");
    let fenced = format!("statehold task complete {one} --token 1");
    let again = "statehold task create a --id 00000000-0000-7000-8000-000000000001 -k key".to_owned();
    for line in [
        format!("statehold task show {one}"),
        "statehold task list".to_owned(),
        format!("statehold task why {one}"),
        format!("statehold stream read task/{one}"),
        format!("statehold task cancel {one}"),
        "statehold lock show k".to_owned(),
        "statehold lock list".to_owned(),
        "statehold lock acquire k".to_owned(),
        fenced,
        again,
        "statehold lock force-release k".to_owned(),
    ] {
        for line in [line.clone(), format!("{line} -o json")] {
            let output = cli.shell(&line);
            let seen = text(&output.stdout) + &text(&output.stderr);
            assert!(!seen.contains(task.trim()) && !seen.contains(lock.trim()), "{line}: {seen}");
        }
    }
}

#[test]
fn the_environment_of_a_worker_is_enough_to_act_on_its_task() {
    let cli = Cli::new();
    let one = "00000000-0000-7000-8000-000000000001";
    cli.good(&format!("statehold task create a --id {one}"));
    cli.good(&format!("statehold task start {one}"));
    let token = cli.good(&format!("token {one}"));
    let cli = cli.with("STATEHOLD_TASK_ID", one).with("STATEHOLD_TASK_TOKEN", token.trim());
    cli.good("statehold task renew --progress 5");
    assert_eq!(cli.good("statehold task complete --result 7"), format!("task {one} is completed\n"));
}

#[test]
fn a_wait_ends_when_another_process_ends_the_task() {
    let cli = Cli::new();
    let one = "00000000-0000-7000-8000-000000000001";
    cli.good(&format!("statehold task create a --id {one}"));
    cli.good(&format!("statehold task start {one} --lease 10m"));
    let script = format!(
        "statehold task watch {one} > watched & watch=$!
         statehold result wait r --timeout 60s > result & result=$!
         statehold task wait {one} --timeout 60s > waited & waiter=$!
         sleep 0.3
         statehold task complete {one} --token $(token {one})
         statehold result set r 5
         wait $watch && wait $waiter && wait $result && cat waited result && tail -n 1 watched"
    );
    let seen = cli.good(&script);
    assert!(seen.contains("task.completed") && seen.contains("\n5\n"), "{seen}");
}

#[test]
fn pages_and_completions_are_written_for_every_command() {
    let cli = Cli::new();
    cli.good("statehold man --to man1");
    let page = std::fs::read_to_string(cli.path().join("man1/statehold-task-create.1")).expect("the page");
    assert!(page.contains(".TH") && page.contains("idempotency"), "{page}");
    assert!(cli.good("statehold man task create").contains("idempotency"));
    assert_eq!(cli.shell("statehold man task nonsense").status.code(), Some(3));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = cli.good(&format!("statehold completions {shell}"));
        assert!(script.contains("idempotency-key"), "{shell}");
    }
    let loads = "statehold completions bash > c.bash && bash -n c.bash";
    cli.good(loads);
}

#[test]
fn the_reference_is_what_the_commands_say_of_themselves() {
    let written = std::fs::read_to_string(root().join("docs/cli.md")).unwrap_or_default();
    let now = Cli::new().good("statehold reference");
    assert!(written == now, "docs/cli.md is out of date: run `cargo run -- reference > docs/cli.md`");
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of the reference that do something, each with its help.
fn commands() -> Vec<(String, String)> {
    let page = Cli::new().good("statehold reference");
    let sections = page.split("\n## statehold ").skip(1).filter_map(|section| section.split_once('\n'));
    let leaves = sections.filter(|(_, help)| !help.contains("<COMMAND>"));
    leaves.map(|(name, help)| (name.to_owned(), help.to_owned())).collect()
}

#[test]
fn every_command_has_an_example_and_knows_its_environment() {
    let commands = commands();
    assert!(commands.len() > 60, "{}", commands.len());
    for (name, help) in &commands {
        assert!(help.contains("\nExamples:\n"), "{name} has no example");
        let long = Cli::new().good(&format!("statehold {name} --help"));
        let on_a_store = !matches!(name.as_str(), "demo" | "bench" | "completions" | "man");
        assert!(
            !on_a_store || long.contains("[env: STATEHOLD_STORE]"),
            "{name} does not tell of its environment"
        );
    }
}

/// What must be there for an example: a task in the status that its command is for, and things that it names.
fn prepared(command: &str) -> Cli {
    let id = "00000000-0000-7000-8000-000000000001";
    let cli = Cli::new();
    let backlog = if command == "task promote" { "--backlog" } else { "" };
    cli.good(&format!("statehold task create prepared --id {id} --queue chat {backlog}"));
    cli.good("statehold task create prepared; statehold task create prepared --queue mail");
    let pending = ["task start", "task park", "task promote", "task claim", "work"];
    let mut token = "0".to_owned();
    if !pending.contains(&command) {
        cli.good(&format!("statehold task start {id} --lease 10m"));
        token = cli.good(&format!("token {id}"));
    }
    if matches!(command, "task watch" | "task wait") {
        cli.good(&format!("statehold task complete {id} --token {token}"));
    }
    if matches!(command, "task retry" | "task purge") {
        cli.good(&format!("statehold task cancel {id} --force"));
    }
    cli.good("statehold stream append run/7 begun; statehold stream append run/7 step");
    if matches!(command, "stream append" | "stream tail") {
        cli.good("statehold stream trim run/7 --keep 1");
    }
    cli.good(
        "statehold doc put project 1 '{\"state\": \"new\"}'; echo '{}' > body.json; cp body.json result.json",
    );
    cli.good("echo png > picture.png; statehold dump --namespace empty --to backup.jsonl");
    cli.good("statehold thread create 42; statehold entry set code/7 1; statehold result set 42 1");
    cli.good("statehold lock acquire project/1 --ttl 10m");
    let (lock, delivery) = (cli.good("lock_token project/1"), cli.good("delivery mailer run/7"));
    cli.with("ID", id)
        .with("TOKEN", token.trim())
        .with("LOCK_TOKEN", lock.trim())
        .with("DELIVERY", delivery.trim())
}

#[test]
fn every_example_in_the_help_can_be_run() {
    // These need programs of the reader's, or take long; they have tests of their own.
    let elsewhere = ["work", "lock run", "demo", "serve", "token revoke"];
    let mut run = 0;
    for (name, help) in commands().iter().filter(|(name, _)| !elsewhere.contains(&name.as_str())) {
        let (_, examples) = help.split_once("\nExamples:\n").expect("examples");
        let before = prepared(name);
        for example in examples.lines().take_while(|line| line.starts_with("  ")).map(str::trim) {
            let cli = before.copy();
            clear_the_way(&cli, example);
            let line = if name == "stream tail" {
                format!("timeout 1 {example}; [ $? = 124 ]")
            } else {
                example.to_owned()
            };
            let output = cli.shell(&line);
            assert!(output.status.success(), "{name}: {example}: {output:?}");
            run += 1;
        }
    }
    assert!(run > 100, "{run}");
}

/// What an example wants not to be there.
fn clear_the_way(cli: &Cli, example: &str) {
    if example.contains("--expect absent") {
        cli.good("statehold doc delete project 1");
    }
    if example.contains("dump --to") {
        cli.good("rm backup.jsonl");
    }
    if example.contains("--expect-seq 1") {
        cli.good("rm statehold.db*; statehold stream append run/7 begun");
    }
}
