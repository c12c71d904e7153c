//! What people and programs see of the command: whole sessions with the built binary, each in a folder of its own with
//! its own SQLite file.

use crate::harness::{Cli, FILTERS};

/// Ids that sessions give to their tasks, so that they can be named.
const ONE: &str = "00000000-0000-7000-8000-000000000001";
const TWO: &str = "00000000-0000-7000-8000-000000000002";

/// Compares a session with how it went when someone last looked at it.
macro_rules! same_as_ever {
    ($session:expr) => {
        insta::with_settings!({ filters => FILTERS.to_vec(), omit_expression => true }, {
            insta::assert_snapshot!($session);
        });
    };
}

#[test]
fn a_task_goes_through_by_hand() {
    let cli = Cli::new().with("ONE", ONE).with("TWO", TWO);
    same_as_ever!(cli.session(
        r#"
        statehold task create answer --id $ONE --queue chat --input '{"question": "why"}' -k hook-7 --label team=a --thread 42
        statehold task create answer --queue chat --input '{"question": "why"}' -k hook-7 --label team=a --thread 42
        statehold task create answer --queue mail -k hook-7
        statehold task create answer --queue mail -k hook-7 --on-duplicate return
        statehold task create later --id $TWO --depends-on $ONE --priority -5 --timeout 5m --max-attempts 1
        statehold task create parked --backlog --rank 7 --metadata '{"by": "hand"}' --expires-at +1d
        statehold task create child --parent $ONE --child-key a --delay 2h
        statehold task list
        statehold task list --status pending --limit 1
        statehold task list --label team=b
        statehold task claim --queue chat --owner me --lease 5m
        TOKEN=$(token $ONE)
        statehold task show $ONE
        statehold task renew $ONE --token $TOKEN --lease 10m --progress '{"done": 1}'
        statehold task cancel $ONE
        statehold task renew $ONE --token $TOKEN
        statehold task complete $ONE --token $TOKEN --result '{"answer": 42, "sources": ["one", "two", "three"], "sure": true, "long": "so that it takes several lines"}'
        statehold task complete $ONE --token 1
        statehold task show $ONE
        statehold task wait $ONE
        statehold task watch $ONE
        statehold task show $TWO --events 0
        statehold task claim --queue nothing
        "#
    ));
}

#[test]
fn a_task_fails_and_is_tried_again() {
    let cli = Cli::new().with("ONE", ONE).with("TWO", TWO);
    same_as_ever!(cli.session(
        r#"
        statehold task create try --id $ONE --max-attempts 2 --backoff 10m
        statehold task create after --id $TWO --depends-on $ONE
        statehold task start $ONE --owner me
        TOKEN=$(token $ONE)
        statehold task start $ONE
        statehold task fail $ONE --token $TOKEN --error 'no answer' --code overloaded --details '{"status": 529}'
        statehold task fail $ONE --token $TOKEN --error again
        statehold task why $ONE
        statehold task amend $ONE --run-at +0s
        statehold task start $ONE
        TOKEN=$(token $ONE)
        statehold task fail $ONE --token $TOKEN --error 'still no answer' --no-retry
        statehold task show $ONE --events 3
        statehold task show $TWO --events 1
        statehold task wait $ONE
        statehold task watch $TWO
        statehold task retry $ONE --with-dependents
        statehold task list --order claim --descending
        "#
    ));
}

#[test]
fn a_task_is_changed_from_outside() {
    let cli = Cli::new().with("ONE", ONE).with("TWO", TWO);
    same_as_ever!(cli.session(
        r#"
        statehold task create move --id $ONE --label old=1
        statehold task park $ONE --rank 3
        statehold task promote $ONE
        statehold task promote $ONE
        statehold task amend $ONE --priority -5 --label team=a --remove-label old --metadata '{"note": "x"}'
        statehold task amend $ONE --revision 1 --priority 0
        statehold task start $ONE
        TOKEN=$(token $ONE)
        statehold task suspend $ONE --token $TOKEN --signal approved --timeout 1d
        statehold task signal $ONE approved --data '{"by": "me"}'
        statehold task start $ONE
        statehold task evict $ONE
        statehold task start $ONE
        TOKEN=$(token $ONE)
        statehold task release $ONE --token $TOKEN --run-at +1h
        statehold task purge $ONE
        statehold task cancel $ONE --force --children
        statehold task purge $ONE
        statehold task show $ONE
        "#
    ));
}

#[test]
fn why_says_what_holds_a_task_and_what_to_do() {
    let cli = Cli::new().with("ONE", ONE).with("TWO", TWO);
    same_as_ever!(cli.session(
        r"
        statehold task create a --id $ONE --queue 'two words' --exclusive-key k
        statehold task why $ONE
        statehold queue pause 'two words'
        statehold task why $ONE
        statehold task why $ONE -o json
        statehold task create b --id $TWO --depends-on $ONE --delay 1h
        statehold task why $TWO
        statehold task park $TWO
        statehold task why $TWO
        statehold task start $ONE
        statehold task why $ONE
        TOKEN=$(token $ONE)
        statehold task suspend $ONE --token $TOKEN --signal go
        statehold task why $ONE
        statehold task cancel $ONE
        statehold task why $ONE
        "
    ));
}

#[test]
fn programs_get_json_of_tasks() {
    let cli = Cli::new().with("ONE", ONE);
    same_as_ever!(cli.session(
        r"
        statehold task create answer --id $ONE --input 12345678901234567890.10 -o json
        statehold task list -o json
        statehold task claim -o json
        statehold task claim -o json
        statehold task show $ONE -o json
        statehold task show $ONE -o json --token
        TOKEN=$(token $ONE)
        statehold task renew $ONE --token $TOKEN -o json
        statehold task complete $ONE --token $TOKEN -o json
        statehold task watch $ONE -o json
        statehold task wait $ONE -o json
        statehold task purge $ONE -o json
        statehold task show $ONE -o json
        "
    ));
}

#[test]
fn queues() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r"
        statehold queue list
        statehold task create a --queue chat
        statehold task create b --queue mail --backlog
        statehold task claim --queue chat
        statehold queue pause mail
        statehold queue list
        statehold queue resume mail -o json
        statehold queue list -o json
        "
    ));
}

#[test]
fn threads() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r#"
        statehold thread show 42
        statehold thread create 42 --metadata '{"topic": "billing"}'
        statehold thread create 42 --metadata '{"topic": "another"}'
        statehold thread update 42 --metadata '{"topic": null, "open": true}'
        statehold thread say 42 user 'Where is my parcel?' --actor web
        statehold thread say 42 tool --content '{"parcel": "lost"}'
        statehold thread say 42 user
        statehold thread messages 42 --limit 1
        statehold thread messages 42 -o json
        statehold thread show 42
        statehold thread show 42 -o json
        "#
    ));
}

#[test]
fn streams() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r#"
        statehold stream append run/7 begun --actor me
        statehold stream append run/7 step --data '{"number": 1}' --expect-seq 1
        statehold stream append run/7 step --expect-seq 1
        statehold stream append run/8 begun
        statehold stream append run oops
        statehold stream read run/7
        statehold stream read run/7 --last --limit 1
        statehold stream read run/7 --before 2
        statehold stream read --category run --limit 2
        statehold stream read --category run -o json
        statehold stream read run/9
        statehold stream list --prefix run/
        statehold stream trim run/7 --keep 1
        statehold stream read run/7 --after 0
        statehold stream purge run/7
        statehold stream trim run/9 --older-than 1d
        statehold stream list -o json
        "#
    ));
}

#[test]
fn groups() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r#"
        statehold group info mailer run
        statehold stream append run/7 begun --data '{"a": 1}'
        statehold stream append run/8 begun
        statehold group read mailer run --consumer me --limit 1
        statehold group read mailer run --consumer you -o json
        statehold group read mailer run
        statehold group info mailer run
        statehold group ack mailer run nonsense
        statehold group ack mailer run 0000000000000001:1
        statehold group seek mailer run oldest
        DELIVERY=$(delivery mailer run)
        statehold group nack mailer run $DELIVERY --delay 0
        DELIVERY=$(delivery mailer run)
        statehold group ack mailer run $DELIVERY
        statehold group info mailer run -o json
        "#
    ));
}

#[test]
fn documents() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r#"
        statehold doc get project 1
        statehold doc put project 1 '{"state": "new"}' --expect absent --label team=a --ttl 30d
        statehold doc put project 1 '{"state": "old"}' --expect absent
        statehold doc put project 1 '{"state": "old"}' --expect 1
        echo '[1.10, {"long": "so that this takes more than one line of the terminal when it is shown"}]' > body.json
        statehold doc put project 2 @body.json
        statehold doc put project 2 - --schema-version 3 < body.json
        printf '\001\002' | statehold doc put picture 1 - --content-type image/png
        statehold doc get project 1
        statehold doc get project 2
        statehold doc get project 1 -o json
        statehold doc get picture 1 | wc -c
        statehold doc get picture 1 -o json
        statehold doc list project --descending
        statehold doc list picture
        statehold doc list project --all -o json
        statehold doc delete project 1 --expect 7
        statehold doc delete project 1
        statehold doc delete project 1
        statehold doc put project 3 nonsense
        "#
    ));
}

#[test]
fn a_document_is_edited_and_nothing_that_was_typed_is_lost() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r#"
        EDITOR='sed -i s/{}/{\"begun\":1}/' statehold doc edit project 1
        statehold doc put project 1 '{"state": "new"}' --label team=a
        EDITOR='sed -i s/new/old/' statehold doc edit project 1
        EDITOR=true statehold doc edit project 1
        EDITOR=false statehold doc edit project 1
        EDITOR='sed -i s/{/[/' statehold doc edit project 1
        EDITOR='sh -c "statehold doc put project 1 5 >&2; echo {} > \$0"' statehold doc edit project 1
        statehold doc get project 1 -o json
        printf x | statehold doc put picture 1 - --content-type image/png
        EDITOR=true statehold doc edit picture 1
        "#
    ));
}

#[test]
fn entries_and_results() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r#"
        statehold entry get code/7
        statehold entry set code/7 '"1234"' --ttl 5m
        statehold entry set code/7 '"5678"' --if-absent
        statehold entry get code/7
        statehold entry get code/7 -o json
        statehold entry list --prefix code/
        statehold entry take code/7
        statehold entry take code/7
        statehold entry delete code/7
        statehold result set 42 '{"answer": 42}' --ttl 1d
        statehold result get 42
        statehold result wait 42 -o json
        statehold result take 42
        statehold result get 42
        statehold result wait 42 --timeout 10ms
        "#
    ));
}

#[test]
fn locks() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r"
        statehold lock list
        statehold lock acquire project/1 --owner me --ttl 10m
        statehold lock acquire project/1 --owner you --wait 10ms
        statehold lock show project/1
        statehold lock show project/1 -o json
        statehold lock list
        statehold lock list -o json
        TOKEN=$(lock_token project/1)
        statehold lock renew project/1 --token $TOKEN --ttl 20m
        statehold lock renew project/1 --token 1
        STATEHOLD_LOCK_KEY=project/1 STATEHOLD_LOCK_TOKEN=$TOKEN statehold lock release
        statehold lock show project/1
        statehold lock acquire project/1 -o json
        statehold lock force-release project/1
        statehold lock force-release project/1 -o json
        statehold lock renew project/1 --token nonsense
        "
    ));
}

#[test]
fn the_store_itself() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r"
        statehold migrate --dry-run
        statehold migrate
        statehold migrate --dry-run -o json
        statehold health
        statehold health -o json
        statehold doctor
        statehold doctor -o json
        statehold doctor --store memory:
        statehold task create a -k one
        statehold entry set seen 1 --ttl 1ms
        statehold task claim --lease 1ms
        statehold sweep
        statehold sweep --all-namespaces --retention -o json
        statehold dump --to dump.jsonl
        statehold dump --to dump.jsonl
        statehold load --from dump.jsonl
        statehold load --from dump.jsonl --namespace copy
        statehold dump --namespace copy | diff - dump.jsonl
        statehold load --from missing.jsonl
        echo nonsense | statehold load --namespace other -o json
        "
    ));
}

#[test]
fn settings_come_from_flags_then_the_environment_then_the_file() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r#"
        statehold config
        printf 'store = "mysql://me:secret@db/state"\nnamespace = "file"\nactor = "robot"\n' > statehold.toml
        statehold config
        STATEHOLD_NAMESPACE=env statehold config --actor me
        STATEHOLD_NAMESPACE=env statehold config --namespace flag -o json
        statehold task list
        STATEHOLD_STORE=memory: statehold task create a -o json | grep -c created
        printf 'stoer = "x"\n' > statehold.toml
        statehold task list
        statehold config --config other.toml
        "#
    ));
}

#[test]
fn errors_say_what_to_do() {
    let cli = Cli::new();
    same_as_ever!(cli.session(
        r"
        statehold task list --store mysql://localhost
        statehold task list --store sqlite:missing/state.db
        statehold task list --store sqlite:.
        echo 'this is no database, although it is long enough to be taken for one' > text.db
        statehold task list --store sqlite:text.db
        statehold doctor --store sqlite:text.db
        statehold task show 7
        statehold task show 01980000-0000-7000-8000-00000000000a
        statehold task cancel 01980000-0000-7000-8000-00000000000a
        statehold task create a --input hello
        statehold task create a --input @missing.json
        statehold task create a --input '{'
        statehold task create a --metadata 5
        statehold task create '' -o json
        statehold task create a --delay soon
        statehold task create a --run-at yesterday
        statehold task create a --label team
        statehold task create a --depends-on 01980000-0000-7000-8000-00000000000a
        statehold task complete 01980000-0000-7000-8000-00000000000a --token secret
        statehold task list --status done
        statehold tsak list
        statehold task
        "
    ));
}
