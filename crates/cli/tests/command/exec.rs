//! `run --exec`: a command for each batch.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    process::{eventually, text},
    shop::{Shop, changes},
};

#[test]
fn a_command_gets_every_change_on_its_stdin() {
    let shop = Shop::served();
    let ledger: BTreeSet<String> = shop.load(120).into_iter().collect();
    let host = shop.host("a", &["--exec", "cat >> got; echo $CHANGEFEED_LEASE $CHANGEFEED_ATTEMPT >> calls"]);
    eventually("all orders", || shop.lines("got").len() >= 120 && changes(&shop.lines("got")) == ledger);
    shop.catches_up();
    host.stop();
    let calls: BTreeSet<String> = shop.lines("calls").into_iter().collect();
    assert_eq!(calls, ["0 1", "1 1", "2 1", "3 1"].map(str::to_owned).into());
}

#[test]
fn a_command_that_fails_is_run_again_with_the_same_batch() {
    let shop = Shop::served();
    let ledger: BTreeSet<String> = shop.load(10).into_iter().collect();
    // The first attempt takes the batch and fails, the second succeeds.
    let host = shop.host("a", &["--exec", "cat >> got.$CHANGEFEED_ATTEMPT; test $CHANGEFEED_ATTEMPT -gt 1"]);
    eventually("second attempts", || changes(&shop.lines("got.2")) == ledger);
    shop.catches_up();
    host.stop();
    assert_eq!(changes(&shop.lines("got.1")), ledger);
}

#[test]
fn a_command_may_give_a_result_for_each_change() {
    let shop = Shop::served();
    shop.load(12);
    // Number 3 is skipped, number 5 is put aside at once; the rest is not mentioned.
    let script = shop.folder.write(
        "script",
        r#"while read -r line; do
  echo "$line" >> got
  id=$(echo "$line" | sed 's/.*"change_id":"\([^"]*\)".*/\1/')
  case "$line" in
    *'"number":3,'*) echo "{\"change_id\":\"$id\",\"result\":\"skip\"}" ;;
    *'"number":5,'*) echo "{\"change_id\":\"$id\",\"result\":\"dead-letter\",\"reason\":\"five is right out\"}" ;;
  esac
done
"#,
    );
    let command = format!("sh {script}");
    let host = shop.host("a", &["--results", "--dead-letters", "shop/rejected", "--exec", &command]);
    eventually("all orders", || shop.lines("got").len() == 12);
    shop.catches_up();
    host.stop();
    let listed = crate::dead_letters::letters(&shop, &["list", "--json"]);
    let letter: Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(letter["errors"][0], "five is right out", "{letter}");
}

#[test]
fn a_command_that_prints_garbage_fails_and_says_why() {
    let shop = Shop::in_folder();
    shop.load(1);
    let more = ["--print", "--log", "off"];
    assert_eq!(
        shop.run(&["run"], &[&more[..], &["--results"]].concat()).status.code(),
        Some(2),
        "--results needs --exec"
    );
    // An option of another delegate is not ignored silently.
    for (option, needs) in [("--allow-private", "--webhook"), ("--copy-key-file=key", "--copy-to")] {
        for delegate in [&["--print"][..], &["--exec", "cat"]] {
            let output = shop.run(&["run"], &[delegate, &[option, "--once", "--log", "off"]].concat());
            assert_eq!(output.status.code(), Some(2), "{option} needs {needs}, {delegate:?}");
        }
    }
    let more =
        ["--exec", "echo hello", "--results", "--once", "--from", "beginning", "--dead-letters", "shop/rejected"];
    let more = [&more[..], &["--dead-letter-after", "1"]].concat();
    let output = shop.run(&["run"], &more);
    let said = text(&output.stderr);
    assert!(said.contains("with --results each line of stdout must be a result"), "{said}");
}

#[test]
fn the_end_of_stderr_is_part_of_the_error_in_the_log_in_explain_and_in_dead_letters() {
    let shop = Shop::served();
    shop.load(1);
    // Longer than what is kept, with a colour, and then the line that matters.
    let command = "seq 1 600 >&2; printf '\\033[31msmtp: no route\\033[0m to host\\n' >&2; exit 3";
    let host = shop.logged_host("a", &["--exec", command]);
    let logged = shop.logs("batch failed");
    assert!(
        logged.contains("the command ended with exit status: 3: ...")
            && logged.contains("599 600 smtp: no route to host"),
        "{logged}"
    );
    eventually("stderr itself, which goes through", || shop.lines("log").contains(&"1".to_owned()));
    eventually("the error in explain", || {
        let said = text(&shop.run(&["explain"], &[]).stdout);
        said.contains("the command ended with exit status: 3: ...") && said.contains("600 smtp: no route to host\n")
    });
    host.stop();

    let letters = ["--dead-letters", "shop/rejected", "--dead-letter-after", "1", "--log", "off"];
    let options = ["--exec", "echo 'no such address' >&2; exit 4", "--once"];
    shop.says(&["run"], &[&options[..], &letters[..]].concat());
    let listed = crate::dead_letters::letters(&shop, &["list"]);
    assert!(listed.contains("1 x the command ended with exit status: 4: no such address\n"), "{listed}");
}

#[test]
fn the_error_of_a_command_that_takes_too_long_says_what_it_said_last() {
    let shop = Shop::in_folder();
    shop.load(1);
    let letters = ["--dead-letters", "shop/rejected", "--dead-letter-after", "1", "--log", "off"];
    let options = ["--exec", "echo 'waiting for smtp' >&2; sleep 1000", "--delegate-timeout", "1s500ms", "--once"];
    shop.says(&["run"], &[&options[..], &["--from", "beginning"], &letters[..]].concat());
    let listed = crate::dead_letters::letters(&shop, &["list"]);
    assert!(listed.contains("1 x the command did not end within 1s 500ms: waiting for smtp\n"), "{listed}");
}

#[test]
fn a_process_that_a_command_leaves_behind_does_not_keep_its_batch_waiting() {
    let shop = Shop::in_folder();
    shop.load(1);
    // It keeps stderr open, and can write to it later.
    let command = "(while test ! -e end; do sleep 0.05; done; echo late >&2 && touch wrote) & true";
    let host = shop.host("a", &["--exec", command]);
    shop.catches_up();
    shop.folder.write("end", "");
    eventually("its last words", || shop.folder.path().join("wrote").exists());
    host.stop();
}

#[test]
fn a_process_that_keeps_the_stdout_of_a_command_does_not_keep_its_results_waiting() {
    let shop = Shop::in_folder();
    shop.load(1);
    // What was printed before the command ended counts, however much it is.
    let script = shop.folder.write(
        "script",
        r#"id=$(sed 's/.*"change_id":"\([^"]*\)".*/\1/')
(while test ! -e end; do sleep 0.05; done; echo late) &
yes '' | head -n 60000
echo "{\"change_id\":\"$id\",\"result\":\"dead-letter\",\"reason\":\"heard\"}"
"#,
    );
    let command = format!("sh {script}");
    let letters = ["--results", "--dead-letters", "shop/rejected"];
    let host = shop.host("a", &[&["--exec", &command], &letters[..]].concat());
    shop.catches_up();
    shop.folder.write("end", "");
    host.stop();
    let listed = crate::dead_letters::letters(&shop, &["list"]);
    assert!(listed.contains("1 x heard\n"), "{listed}");
}

#[test]
fn a_command_gets_no_secret_of_its_host_and_no_trace_of_another() {
    let shop = Shop::in_folder();
    shop.load(1);
    let secret = "c2VjcmV0IHNlY3JldCBzZWNyZXQ=";
    let account = format!("AccountEndpoint=https://shop.example.com:443/;AccountKey={secret};");
    let key_file = shop.folder.write("secrets", &format!("whsec_{secret}\n"));
    let command = ["--exec", "env > seen; cat > batch", "--once", "--from", "beginning", "--log", "off"];
    let mut host = shop.command(&["run"], &command);
    host.env("CHANGEFEED_KEY", secret).env("CHANGEFEED_WEBHOOK_SECRET_FILE", &key_file);
    // The options on the command line count.
    host.env("CHANGEFEED_STORE", &account).env("CHANGEFEED_OTHER", format!("https://ada:{secret}@example.com"));
    host.env("CHANGEFEED_CONTAINER", "shop/orders").env("TRACEPARENT", "00-1-2-01");
    let output = host.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let seen = shop.lines("seen");
    assert!(!seen.iter().any(|line| line.contains("c2VjcmV0")), "{seen:?}");
    let has = |name: &str| seen.iter().any(|line| line.starts_with(&format!("{name}=")));
    assert!(!has("CHANGEFEED_WEBHOOK_SECRET_FILE") && !has("TRACEPARENT"), "{seen:?}");
    assert!(has("CHANGEFEED_CONTAINER") && has("CHANGEFEED_LEASE") && has("PATH"), "{seen:?}");
}

#[tokio::test]
async fn a_command_gets_the_trace_of_its_batch() {
    let shop = Shop::served();
    let server = changefeed::remote::Server::connect(&shop.store(), changefeed::remote::EMULATOR_KEY).unwrap();
    let orders = server.database("shop").container("orders").partition_key("/customer").create().await.unwrap();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let item = serde_json::json!({ "id": "1", "customer": "ada", "traceparent": parent, "tracestate": "vendor=1" });
    orders.create(&item).await.unwrap();
    let host = shop.host("a", &["--exec", "cat > batch; echo $TRACEPARENT $TRACESTATE > trace"]);
    eventually("the trace", || shop.lines("trace") == [format!("{parent} vendor=1")]);
    host.stop();
}

#[test]
fn a_host_that_is_killed_in_the_middle_of_its_work_is_replaced_and_nothing_is_lost() {
    let shop = Shop::served();
    let ledger: BTreeSet<String> = shop.load(200).into_iter().collect();
    let command = "sleep 0.05; cat >> got";
    let timing = ["--acquire-interval", "500ms", "--renew-interval", "500ms", "--expiration", "2s", "--max-items", "5"];
    let options = [&["--exec", command], &timing[..]].concat();
    let first = shop.host("a", &options);
    eventually("a part of the orders", || shop.lines("got").len() >= 20);
    let second = shop.host("b", &options);
    // Dropping it kills it.
    drop(first);
    shop.catches_up();
    second.stop();
    assert_eq!(changes(&shop.lines("got")), ledger);
}

#[test]
fn all_processes_of_a_command_end_at_the_timeout() {
    let shop = Shop::served();
    shop.load(1);
    let command = "echo $$ >> started; sleep 1000 & sleep 1000";
    let host = shop.host("a", &["--exec", command, "--delegate-timeout", "300ms"]);
    eventually("a second attempt", || shop.lines("started").len() >= 2);
    let group = shop.lines("started").first().cloned().unwrap();
    eventually("the end of the first attempt", || members(&group).is_empty());
    // A stop ends what is running, too, at its deadline at the latest.
    host.stop();
    for group in shop.lines("started") {
        eventually("the end of all attempts", || members(&group).is_empty());
    }
}

#[test]
fn a_command_does_not_outlive_a_host_that_is_killed() {
    let shop = Shop::served();
    shop.load(1);
    let host = shop.host("a", &["--exec", "echo $$ >> started; sleep 1000 & sleep 1000"]);
    eventually("a command", || !shop.lines("started").is_empty());
    let group = shop.lines("started").first().cloned().unwrap();
    assert!(!members(&group).is_empty());
    // Dropping it kills it, by SIGKILL.
    drop(host);
    eventually("the end of its command", || members(&group).is_empty());
}

/// The processes of a process group.
fn members(group: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // After the name in brackets: state, parent, group.
        let after = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after.split_whitespace().collect();
        if fields.get(2) == Some(&group) && fields.first() != Some(&"Z") {
            found.push(stat);
        }
    }
    found
}
