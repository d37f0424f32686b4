//! The server tells its account host, whatever name clients use to reach it.

use changefeed::remote::{EMULATOR_KEY, Server as Client};

use crate::{
    block_on,
    process::{Server, run, text},
};

#[test]
fn clients_that_reach_a_server_by_different_names_use_the_account_host_that_it_tells() {
    for (args, host) in [(&[][..], "localhost"), (&["--account-host", "shop.example.com"], "shop.example.com")] {
        let server = Server::start(&[&["--store", "memory"], args].concat());
        let port = server.address().port();
        for name in ["localhost", "127.0.0.1"] {
            let client = Client::connect(&format!("http://{name}:{port}"), EMULATOR_KEY).unwrap();
            let orders = block_on(client.database("shop").container("orders").open_or_create()).unwrap();
            assert_eq!(orders.identity().account_host, host, "reached as {name}");
        }
    }
}

#[test]
fn an_account_host_that_is_not_a_host_name_is_refused() {
    for host in ["", "Shop", "shop:8081", "a_b", "a b"] {
        let refused = run(&["serve", "--store", "memory", "--account-host", host]);
        assert_eq!(refused.status.code(), Some(2), "{host}");
        assert!(text(&refused.stderr).contains("in lower case without port"), "{host}");
    }
}
