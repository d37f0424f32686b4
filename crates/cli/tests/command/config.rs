//! Options by flags, by the environment and by the config file, in this order.

use crate::{
    process::{command, text},
    shop::{Shop, assert_good},
};

#[test]
fn flags_count_before_variables_and_these_before_the_file() {
    let shop = Shop::in_folder();
    shop.load(30);
    let file = format!("store = '{}'\ncontainer = 'shop/none'\nmax = 3\n", shop.store());
    shop.folder.write("changefeed.toml", &file);
    let tail = |variable: Option<&str>, more: &[&str]| {
        let mut command = command(&[&["tail", "--from", "beginning", "--once"], more].concat());
        command.current_dir(shop.folder.path());
        if let Some(container) = variable {
            command.env("CHANGEFEED_CONTAINER", container);
        }
        command.output().unwrap()
    };
    let by_file = tail(None, &[]);
    assert!(text(&by_file.stderr).contains("there is no container shop/none"), "{}", text(&by_file.stderr));
    let by_variable = tail(Some("shop/orders"), &[]);
    assert_good(&by_variable);
    assert_eq!(text(&by_variable.stdout).lines().count(), 3);
    let by_flag = tail(Some("shop/nothing"), &["--container", "shop/orders", "--max", "5"]);
    assert_good(&by_flag);
    assert_eq!(text(&by_flag.stdout).lines().count(), 5);
}

#[test]
fn flags_in_the_file_count_unless_what_is_typed_conflicts() {
    let shop = Shop::in_folder();
    shop.load(3);
    shop.folder.write("changefeed.toml", "print = true\nonce = true\nfrom = 'beginning'\nlog = 'warn'\njson = false\n");
    assert_eq!(shop.says(&["run"], &[]).lines().count(), 3);
    shop.says(&["seek"], &["--to", "beginning"]);
    assert_eq!(shop.says(&["run"], &["--exec", "cat > /dev/null"]), "", "the command counts before --print");
    let output = shop.command(&["lag"], &[]).env("CHANGEFEED_STOER", "x").output().unwrap();
    assert_good(&output);
    let expected = "warning: no option is read from CHANGEFEED_STOER: did you mean CHANGEFEED_STORE?\n";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn what_is_set_is_shown_without_secrets() {
    let shop = Shop::in_folder();
    let hook = "https://ada:c2VjcmV0@hook.example/a?token=c2VjcmV0";
    let file = shop.folder.write("own.toml", &format!("store = './data'\nwebhook = '{hook}'\n"));
    let mut show = command(&["config", "show"]);
    show.env("CHANGEFEED_CONFIG", &file).env("CHANGEFEED_KEY", "c2VjcmV0").env("CHANGEFEED_LEASES", "shop/leases");
    let output = show.output().unwrap();
    assert_good(&output);
    let said = text(&output.stdout);
    assert!(said.contains("store") && said.contains("./data") && said.contains("shop/leases"), "{said}");
    assert!(said.contains("(hidden)") && !said.contains("c2VjcmV0"), "{said}");
    assert!(said.contains("https://(hidden)@hook.example/(hidden)"), "{said}");
    let help = command(&["run", "--help"]).env("CHANGEFEED_CONFIG", &file).output().unwrap();
    assert!(!text(&help.stdout).contains("c2VjcmV0"), "{}", text(&help.stdout));
    let wrong = shop.folder.write("wrong.toml", "stor = './data'\n");
    let output = command(&["config", "show"]).env("CHANGEFEED_CONFIG", &wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("there is no option stor"), "{}", text(&output.stderr));
}

#[test]
fn of_two_values_of_one_option_the_one_that_counts_comes_first_and_the_other_is_marked() {
    let shop = Shop::in_folder();
    let file = "store = './data'\nleases = 'shop/leases'\nmax-items = 5\nkey-file = 'key'\n";
    shop.folder.write("changefeed.toml", file);
    let show = |more: &[&str]| {
        let mut show = command(&[&["config", "show"], more].concat());
        show.current_dir(shop.folder.path()).env("CHANGEFEED_STORE", "./other").env("CHANGEFEED_KEY", "c2VjcmV0");
        // No option is read from this one.
        let output = show.env("CHANGEFEED_MAX_ITEMS", "7").output().unwrap();
        assert_good(&output);
        text(&output.stdout)
    };
    let expected = "\
OPTION     VALUE        FROM
key        (hidden)     CHANGEFEED_KEY, overridden by changefeed.toml
key-file   key          changefeed.toml
leases     shop/leases  changefeed.toml
max-items  5            changefeed.toml
max-items  7            CHANGEFEED_MAX_ITEMS, which no option is read from
store      ./other      CHANGEFEED_STORE
store      ./data       changefeed.toml, overridden by CHANGEFEED_STORE
";
    assert_eq!(show(&[]), expected);
    let list: serde_json::Value = serde_json::from_str(&show(&["--json"])).unwrap();
    let stores: Vec<_> = list.as_array().unwrap().iter().filter(|found| found["option"] == "store").collect();
    assert_eq!((&stores[0]["value"], &stores[0]["effective"]), (&"./other".into(), &true.into()));
    assert_eq!((&stores[1]["effective"], &stores[1]["overridden_by"]), (&false.into(), &"CHANGEFEED_STORE".into()));
}

#[test]
fn the_key_in_a_connection_string_is_shown_nowhere() {
    let shop = Shop::in_folder();
    let account = "AccountEndpoint=https://shop.invalid:443/;AccountKey=c2VjcmV0;";
    let file = shop.folder.write("azure.toml", &format!("store = '{account}'\n"));
    for arguments in [&["config", "show"][..], &["config", "show", "--json"], &["tail", "--help"]] {
        let mut command = command(arguments);
        let output = command.env("CHANGEFEED_CONFIG", &file).env("CHANGEFEED_LEASE_STORE", account).output().unwrap();
        assert_good(&output);
        let said = text(&output.stdout);
        assert!(!said.contains("c2VjcmV0"), "{arguments:?}: {said}");
        assert!(said.contains("https://shop.invalid") || arguments[0] == "tail", "{arguments:?}: {said}");
    }
}

#[test]
fn what_an_option_requires_may_be_set_in_the_file() {
    let shop = Shop::served();
    shop.load(3);
    let key = shop.folder.write("key", changefeed_server::auth::EMULATOR_KEY);
    let (store, copies) = (shop.store(), format!("{}shop/copies", shop.store()));
    let file = |text: &str| {
        let file = format!("store = '{store}'\ncontainer = 'shop/orders'\nleases = 'shop/leases'\n{text}\n");
        shop.folder.write("changefeed.toml", &file);
    };
    let runs = |line: &str| {
        let output = command(&line.split(' ').collect::<Vec<_>>()).current_dir(shop.folder.path()).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let once = "--once --from beginning --log off";
    for (set, line) in [
        ("dead-letters = 'shop/rejected'", format!("run a --exec cat --dead-letter-after 2 {once}")),
        ("dead_letters = 'shop/rejected'", format!("run a --exec cat --dead-letter-after-crashes 2 {once}")),
        ("exec = 'cat > /dev/null'", format!("run b --results {once}")),
        ("webhook = 'http://127.0.0.1:1'", "run c --allow-private --check --log off".to_owned()),
        ("metrics = '127.0.0.1:0'", format!("run d --print --metrics-open --lease-metrics {once}")),
        (&format!("copy-to = '{copies}'"), format!("run e --copy-key-file {key} {once}")),
        (&format!("lease-store = '{store}'"), format!("lag a --lease-key-file {key}")),
    ] {
        file(set);
        runs(&line);
    }
    file("print = true");
    let printed = runs(&format!("run f --json {once}"));
    assert_eq!(printed.lines().filter(|line| line.starts_with('{')).count(), 3, "{printed}");
    file("once = true\ninterval = '1ms'");
    assert!(runs("top a --json").starts_with('{'));
    // What is typed counts before the file, and does not go together with --json.
    file("print = true");
    let mut both = command(&["run", "g", "--exec", "cat", "--json", "--once"]);
    let refused = both.current_dir(shop.folder.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("required arguments were not provided"), "{}", text(&refused.stderr));
}

#[test]
fn an_error_names_the_place_of_a_value_that_is_not_typed() {
    let shop = Shop::in_folder();
    shop.folder.write("changefeed.toml", "delegate-timeout = 5\nlog = 'loud'\n");
    let refused = |args: &[&str], variable: Option<&str>| {
        let mut command = command(args);
        command.current_dir(shop.folder.path());
        variable.map(|value| command.env("CHANGEFEED_CONTAINER", value));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        text(&output.stderr).lines().next().unwrap().to_owned()
    };
    let run = ["run", "mailer", "--print", "--store", "memory", "--leases", "a/l", "--log", "off"];
    let expected = "error: invalid value '5' for '--delegate-timeout <TIME>' from 'changefeed.toml': pass a length of time \
                    with its unit, such as 500ms, 10s, 5m or 1h";
    assert_eq!(refused(&[&run[..], &["--container", "a/b"]].concat(), None), expected);
    let expected = "error: invalid value 'orders' for '--container <DB/NAME>' from 'CHANGEFEED_CONTAINER': pass it as \
                    database/container, for example shop/orders";
    let from_file = [&run[..], &["--delegate-timeout", "5s"]].concat();
    assert_eq!(refused(&from_file, Some("orders")), expected);
    let typed = refused(&[&from_file[..], &["--container", "orders"]].concat(), Some("a/b"));
    assert_eq!(typed, expected.replace(" from 'CHANGEFEED_CONTAINER'", ""));
    let of_list = refused(&["serve", "--store", "memory"], None);
    assert_eq!(of_list, "error: invalid value 'loud' for '--log <LEVEL>' from 'changefeed.toml'");
}

#[test]
fn help_completions_man_and_version_work_whatever_is_in_the_file() {
    let shop = Shop::in_folder();
    for file in ["stor = './data'\n", "store = ", "key = 'x'\n"] {
        shop.folder.write("changefeed.toml", file);
        let run = |args: &[&str]| command(args).current_dir(shop.folder.path()).output().unwrap();
        for args in [
            &["--help"][..],
            &["help", "run"],
            &["run", "--help"],
            &["run", "-h"],
            &["help", "leases", "list"],
            &["--version"],
            &["completions", "bash"],
            &["man"],
        ] {
            let output = run(args);
            assert_good(&output);
            assert!(!output.stdout.is_empty(), "{args:?}");
        }
        assert!(text(&run(&["man"]).stderr).starts_with("warning: the config file changefeed.toml: "));
        let bare = run(&[]);
        assert!(text(&bare.stderr).contains("Usage: changefeed"), "{}", text(&bare.stderr));
        for args in [&["config", "show"][..], &["verify", "--store", "./data"], &["verify"]] {
            let refused = run(args);
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.starts_with("error: the config file changefeed.toml: "), "{args:?}: {said}");
        }
        // An empty name stands for no file.
        let shown = command(&["config", "show"]).current_dir(shop.folder.path()).env("CHANGEFEED_CONFIG", "").output();
        assert_good(&shown.unwrap());
    }
}

#[test]
fn the_demo_works_in_a_folder_whose_file_is_meant_for_servers_and_hosts() {
    let shop = Shop::in_folder();
    let key = shop.folder.write("key", "bmV3a2V5bmV3a2V5bmV3a2V5");
    let served = format!("key-file = '{key}'\ntls = 'self-signed'\nranges = 9\nstore = './data'\nlog = 'trace'\n");
    for file in [served.as_str(), "stor = './data'\n"] {
        shop.folder.write("changefeed.toml", file);
        let demo = command(&["demo", "--seconds", "1", "--json"]).current_dir(shop.folder.path()).output().unwrap();
        assert_good(&demo);
        let ledger: serde_json::Value = serde_json::from_slice(&demo.stdout).unwrap();
        assert_eq!(ledger["lost"], 0, "{ledger}");
    }
}
