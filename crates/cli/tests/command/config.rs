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
    assert!(said.contains("https://(hidden)@hook.example/a?(hidden)"), "{said}");
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
