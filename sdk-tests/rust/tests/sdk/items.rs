//! Items, batches, patches and queries: exact statuses, etags and what is there afterwards.

use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{
    ContainerProperties, CosmosNumber, PartitionKeyDefinition, PartitionKeyVersion, PatchInstructions, PatchOperation,
    ThroughputProperties, TransactionalBatch,
};
use azure_data_cosmos::options::{
    BatchReplaceOptions, ContentResponseOnWrite, CreateContainerOptions, ItemReadOptions, ItemWriteOptions,
    OperationOptionsBuilder, PatchItemOptions, PatchStrategy, Precondition,
};
use azure_data_cosmos::{PartitionKey, Query};
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::server::Server;
use crate::support::{Bodies, Item, Place, client, item, run, status};

#[test]
fn getting_started() -> azure_data_cosmos::Result<()> {
    run(async {
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        struct Order {
            id: String,
            customer: String,
            total: f64,
        }
        let client = client(&Server::shared(), Bodies::Binary).await;
        client.create_database("samples", None).await?;
        let database = client.database_client("samples");
        let properties = ContainerProperties::new("orders", PartitionKeyDefinition::from("/customer"));
        database.create_container(properties, None).await?;
        let items = database.container_client("orders", None).await?;

        let order = Order { id: "o-100".into(), customer: "contoso".into(), total: 42.5 };
        let created = items.create_item(order.customer.clone(), &order.id, &order, None).await?;
        assert_eq!(u16::from(created.status().status_code()), 201);
        assert!(created.headers().request_charge().is_some());
        let read: Order = items.read_item("contoso", "o-100", None).await?.into_model()?;
        assert_eq!(read, order);
        let updated = Order { total: 99.99, ..read };
        let replaced = items.replace_item("contoso", &updated.id, &updated, None).await?;
        assert_eq!(u16::from(replaced.status().status_code()), 200);
        let query = Query::from("SELECT * FROM c WHERE c.total > @low").with_parameter("@low", 50)?;
        let found: Vec<Order> =
            items.query_items(query, FeedScope::partition("contoso"), None).await?.try_collect().await?;
        assert_eq!(found, [updated]);
        items.delete_item("contoso", "o-100", None).await?;
        assert_eq!(status(&items.read_item("contoso", "o-100", None).await.expect_err("it is gone")), (404, 0));
        database.delete(None).await?;
        assert_eq!(status(&database.read(None).await.expect_err("it is gone")), (404, 0));
        Ok(())
    })
}

#[test]
fn every_json_value_comes_back_as_it_was_in_both_encodings() {
    run(async {
        let numbers = json!([
            0,
            1,
            31,
            32,
            255,
            256,
            65_535,
            65_536,
            4_294_967_295_u64,
            9_007_199_254_740_991_i64,
            -1,
            -128,
            -32_769,
            0.5,
            -2.25,
            1e300
        ]);
        let strings: Vec<String> = ["", "a", "é✓😀", "\u{0}\n\"\\", "_etag", "id"]
            .into_iter()
            .map(str::to_owned)
            .chain([63, 64, 255, 256, 65_535, 65_536].map(|length| "x".repeat(length)))
            .collect();
        let deep = (0..30).fold(json!("bottom"), |inner, _| json!({ "in": [inner] }));
        let many: serde_json::Map<String, Value> = (0..300).map(|n| (format!("field{n}"), json!(n))).collect();
        for writer in [Bodies::Binary, Bodies::Text] {
            let place = Place::with(writer, |name| ContainerProperties::new(name, "/pk".into())).await;
            let body = json!({
                "id": "1", "pk": "a", "null": null, "yes": true, "no": false, "numbers": numbers, "strings": strings,
                "empty": {}, "none": [], "deep": deep, "many": many,
            });
            place.container.create_item("a", "1", &body, None).await.expect("a create");
            let mut read: Value =
                place.container.read_item("a", "1", None).await.expect("a read").into_model().expect("JSON");
            for system in ["_rid", "_self", "_etag", "_attachments", "_ts"] {
                assert!(read.as_object_mut().expect("an object").remove(system).is_some(), "{system}");
            }
            assert_eq!(read, body, "{writer:?}");
        }
    });
}

#[test]
fn refusals_have_their_exact_status() {
    run(async {
        let place = Place::new().await;
        let container = &place.container;
        let one = item("1", "a", 1);
        let created = container.create_item("a", "1", &one, None).await.expect("a create");
        let old = created.headers().etag().expect("an etag").clone();
        let conflict = container.create_item("a", "1", &one, None).await.expect_err("it exists");
        assert_eq!(status(&conflict), (409, 0));
        let upserted = container.upsert_item("a", "1", item("1", "a", 2), None).await.expect("an upsert");
        assert_eq!(u16::from(upserted.status().status_code()), 200);
        let new = upserted.headers().etag().expect("an etag").clone();
        assert_ne!(old, new);
        let stale = || Some(ItemWriteOptions::default().with_precondition(Precondition::if_match(old.clone())));
        let three = item("1", "a", 3);
        assert_eq!(status(&container.replace_item("a", "1", &three, stale()).await.expect_err("stale")), (412, 0));
        assert_eq!(status(&container.upsert_item("a", "1", &three, stale()).await.expect_err("stale")), (412, 0));
        assert_eq!(status(&container.delete_item("a", "1", stale()).await.expect_err("stale")), (412, 0));
        assert_eq!(status(&container.read_item("a", "2", None).await.expect_err("missing")), (404, 0));
        assert_eq!(status(&container.delete_item("a", "2", None).await.expect_err("missing")), (404, 0));
        let mismatch = container.create_item("b", "3", item("3", "a", 1), None).await.expect_err("two keys");
        assert_eq!(status(&mismatch), (400, 1001));
        let unchanged = ItemReadOptions::default().with_precondition(Precondition::if_none_match(new.clone()));
        let again = container.read_item("a", "1", Some(unchanged)).await;
        assert_eq!(again.map_or_else(|error| status(&error).0, |read| u16::from(read.status().status_code())), 304);
        let fresh = ItemWriteOptions::default().with_precondition(Precondition::if_match(new));
        container.replace_item("a", "1", &three, Some(fresh)).await.expect("the etag is the present one");
        assert_eq!(place.present().await, ["1=3"]);
    });
}

#[test]
fn the_body_of_a_write_comes_back_only_if_asked_for() {
    run(async {
        let place = Place::new().await;
        let wanted =
            OperationOptionsBuilder::new().with_content_response_on_write(ContentResponseOnWrite::Enabled).build();
        let options = ItemWriteOptions::default().with_operation_options(wanted);
        let created = place.container.create_item("a", "1", item("1", "a", 1), Some(options)).await.expect("a create");
        assert_eq!(created.into_model::<Item>().expect("a body"), item("1", "a", 1));
        let silent = place.container.create_item("a", "2", item("2", "a", 1), None).await.expect("a create");
        assert!(silent.into_model::<Item>().is_err(), "there is no body");
        assert_eq!(place.present().await, ["1=1", "2=1"]);
    });
}

#[test]
fn unusual_ids_and_keys_are_just_names() {
    run(async {
        let place = Place::new().await;
        let long = "x".repeat(255);
        let names = [
            "a b",
            " lead",
            "é✓",
            "漢字",
            "😀",
            "50%",
            "%41",
            "a+b",
            "a&b=c",
            "it's",
            "say \"hi\"",
            "semi;colon",
            "(round)",
            "[square]",
            "{curly}",
            "<angle>",
            "@at",
            "!bang",
            "~tilde",
            "`tick",
            "^",
            "|pipe",
            "dot.",
            "colls",
            "docs",
            "AAAAAQ==",
            &long,
        ];
        for name in names {
            let made = item(name, name, 1);
            place
                .container
                .create_item(name.to_owned(), name, &made, None)
                .await
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            let read =
                place.container.read_item(name.to_owned(), name, None).await.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(read.into_model::<Item>().expect("an item"), made);
            let query =
                Query::from("SELECT VALUE c.id FROM c WHERE c.id = @id").with_parameter("@id", name).expect("a query");
            assert_eq!(place.query::<String>(query, FeedScope::partition(name.to_owned())).await, [name]);
        }
        assert_eq!(place.present().await.len(), names.len());
        for name in names {
            place.delete(name, name).await;
        }
        assert!(place.present().await.is_empty());
    });
}

#[test]
fn keys_of_every_type_find_their_item() {
    run(async {
        for version in [PartitionKeyVersion::V1, PartitionKeyVersion::V2] {
            let definition = PartitionKeyDefinition::from("/pk").with_version(version);
            let place = Place::with(Bodies::Binary, |name| ContainerProperties::new(name, definition)).await;
            let cases: Vec<(PartitionKey, Value)> = vec![
                ("a".into(), json!("a")),
                ("".into(), json!("")),
                (0.into(), json!(0)),
                ((-1).into(), json!(-1)),
                ((1_i64 << 40).into(), json!(1_i64 << 40)),
                (1.5_f64.try_into().expect("a number"), json!(1.5)),
                (true.into(), json!(true)),
                (false.into(), json!(false)),
                (None::<String>.into(), Value::Null),
            ];
            for (n, (key, value)) in cases.iter().enumerate() {
                let body = json!({ "id": "same", "pk": value, "n": n });
                place.container.create_item(key.clone(), "same", &body, None).await.expect("a create");
            }
            for (n, (key, value)) in cases.iter().enumerate() {
                let read: Value = place
                    .container
                    .read_item(key.clone(), "same", None)
                    .await
                    .expect("a read")
                    .into_model()
                    .expect("JSON");
                assert_eq!(read["n"], json!(n), "{value} in {version:?}");
                let found: Vec<usize> = place.query("SELECT VALUE c.n FROM c", FeedScope::partition(key.clone())).await;
                assert_eq!(found, [n], "{value} in {version:?}");
            }
        }
    });
}

#[test]
fn a_hierarchical_key_finds_items_whole_and_by_prefix() {
    run(async {
        let place =
            Place::with(Bodies::Binary, |name| ContainerProperties::new(name, ("/tenant", "/user").into())).await;
        for tenant in ["T1", "T2"] {
            for user in 1..4 {
                let id = format!("{tenant}{user}");
                let body = json!({ "id": id, "tenant": tenant, "user": user });
                place.container.create_item((tenant, user), &id, &body, None).await.expect("a create");
            }
        }
        let read: Value =
            place.container.read_item(("T1", 2), "T12", None).await.expect("a read").into_model().expect("JSON");
        assert_eq!(read["id"], "T12");
        let query = "SELECT VALUE c.id FROM c";
        assert_eq!(place.query::<String>(query, FeedScope::partition(("T2", 3))).await, ["T23"]);
        let mut prefix: Vec<String> = place.query(query, FeedScope::partition("T1")).await;
        prefix.sort();
        assert_eq!(prefix, ["T11", "T12", "T13"]);
    });
}

#[test]
fn two_megabytes_is_the_limit_of_an_item() {
    run(async {
        for bodies in [Bodies::Binary, Bodies::Text] {
            let place = Place::with(bodies, |name| ContainerProperties::new(name, "/pk".into())).await;
            let text = "x".repeat(2 * 1024 * 1024 - 1024);
            let body = json!({ "id": "1", "pk": "a", "v": 1, "text": text });
            place.container.create_item("a", "1", &body, None).await.expect("a create");
            let read: Value =
                place.container.read_item("a", "1", None).await.expect("a read").into_model().expect("JSON");
            assert_eq!(read["text"].as_str(), Some(text.as_str()));
            let over = json!({ "id": "2", "pk": "a", "v": 1, "text": "x".repeat(2 * 1024 * 1024 + 1) });
            let refused = place.container.create_item("a", "2", &over, None).await.expect_err("it is too large");
            assert_eq!(status(&refused), (413, 0), "{bodies:?}");
            assert_eq!(place.present().await, ["1=1"]);
        }
    });
}

fn statuses(response: &azure_data_cosmos::models::TransactionalBatchResponse) -> Vec<u16> {
    response.results().iter().map(|result| result.status_code()).collect()
}

#[test]
fn a_batch_is_all_or_nothing() -> azure_data_cosmos::Result<()> {
    run(async {
        let place = Place::new().await;
        place.upsert(&item("old", "a", 1)).await;
        let batch = TransactionalBatch::new("a")
            .create_item(item("1", "a", 1))?
            .upsert_item(item("2", "a", 2), None)?
            .read_item("1", None)
            .replace_item("1", item("1", "a", 10), None)?
            .delete_item("old", None);
        let done = place.container.execute_transactional_batch(batch, None).await?;
        assert_eq!(u16::from(done.status().status_code()), 200);
        assert_eq!(statuses(&done.into_model()?), [201, 201, 200, 200, 204]);
        assert_eq!(place.present().await, ["1=10", "2=2"]);

        let stale = BatchReplaceOptions::default().with_precondition(Precondition::if_match("\"stale\""));
        for (culprit, expected) in [
            (TransactionalBatch::new("a").create_item(item("3", "a", 3))?.create_item(item("1", "a", 1))?, [424, 409]),
            (TransactionalBatch::new("a").create_item(item("3", "a", 3))?.delete_item("none", None), [424, 404]),
            (
                TransactionalBatch::new("a").delete_item("1", None).replace_item(
                    "2",
                    item("2", "a", 9),
                    Some(stale),
                )?,
                [424, 412],
            ),
        ] {
            let failed = place.container.execute_transactional_batch(culprit, None).await?;
            assert_eq!(u16::from(failed.status().status_code()), 207);
            assert_eq!(statuses(&failed.into_model()?), expected);
            assert_eq!(place.present().await, ["1=10", "2=2"]);
        }
        Ok(())
    })
}

#[test]
fn a_batch_takes_a_hundred_operations() -> azure_data_cosmos::Result<()> {
    run(async {
        let place = Place::new().await;
        let batch_of = |n: i64| {
            (0..n).try_fold(TransactionalBatch::new("a"), |batch, n| batch.create_item(item(format!("{n:03}"), "a", n)))
        };
        let refused = place.container.execute_transactional_batch(batch_of(101)?, None).await.expect_err("too many");
        assert_eq!(status(&refused).0, 400);
        assert!(place.present().await.is_empty());
        let done = place.container.execute_transactional_batch(batch_of(100)?, None).await?.into_model()?;
        assert_eq!(statuses(&done), [201; 100]);
        assert_eq!(place.present().await, (0..100).map(|n| format!("{n:03}={n}")).collect::<Vec<_>>());
        Ok(())
    })
}

#[test]
fn patch_knows_every_operation_on_either_side() {
    run(async {
        for strategy in [PatchStrategy::ServerSide, PatchStrategy::ClientSide] {
            let place = Place::new().await;
            let body = json!({ "id": "1", "pk": "a", "n": 1, "list": ["x", "y"], "gone": 1 });
            place.container.create_item("a", "1", &body, None).await.expect("a create");
            let patch = PatchInstructions::new()
                .with_operation(PatchOperation::set("/tier", json!("gold")))
                .with_operation(PatchOperation::add("/list/-", json!("z")))
                .with_operation(PatchOperation::replace("/list/0", json!("w")))
                .with_operation(PatchOperation::remove("/gone"))
                .with_operation(PatchOperation::increment("/n", CosmosNumber::from(2_i64)))
                .with_operation(PatchOperation::move_value("/tier", "/moved"));
            let options = PatchItemOptions::default().with_strategy(strategy);
            let patched = place.container.patch_item("a", "1", patch, Some(options)).await.expect("a patch");
            assert_eq!(u16::from(patched.status().status_code()), 200);
            let read: Value =
                place.container.read_item("a", "1", None).await.expect("a read").into_model().expect("JSON");
            assert_eq!(
                (&read["n"], &read["list"], &read["moved"]),
                (&json!(3), &json!(["w", "y", "z"]), &json!("gold"))
            );
            assert_eq!((read.get("gone"), read.get("tier")), (None, None));
        }
    });
}

#[test]
fn queries_bring_exactly_their_rows_also_after_a_split() {
    run(async {
        let place = Place::new().await;
        for n in 0..30 {
            place.upsert(&item(format!("i{n}"), format!("k{}", n % 10), n)).await;
        }
        for round in 0..3 {
            let all = FeedScope::full_container;
            let ordered: Vec<Item> = place.query("SELECT * FROM c ORDER BY c.v DESC", all()).await;
            assert_eq!(ordered.iter().map(|row| row.v).collect::<Vec<_>>(), (0..30).rev().collect::<Vec<_>>());
            let mut values: Vec<i64> = place.query("SELECT VALUE c.v FROM c WHERE c.v >= 20", all()).await;
            values.sort_unstable();
            assert_eq!(values, (20..30).collect::<Vec<_>>());
            assert_eq!(place.query::<i64>("SELECT VALUE c.v FROM c", FeedScope::partition("k3")).await, [3, 13, 23]);
            let ranges = place.container.read_feed_ranges(None).await.expect("feed ranges");
            let mut parts = Vec::new();
            for range in ranges {
                parts.extend(place.query::<i64>("SELECT VALUE c.v FROM c", FeedScope::range(range)).await);
            }
            parts.sort_unstable();
            assert_eq!(parts, (0..30).collect::<Vec<_>>());
            if round == 0 {
                place.split_all();
            } else {
                place.merge_first_two();
            }
        }
    });
}

#[test]
fn throughput_is_read_and_replaced() -> azure_data_cosmos::Result<()> {
    run(async {
        let client = client(&Server::shared(), Bodies::Binary).await;
        client.create_database("throughput", None).await?;
        let database = client.database_client("throughput");
        assert!(database.read_throughput(None).await?.is_none());
        let options = CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(400));
        database.create_container(ContainerProperties::new("c", "/pk".into()), Some(options)).await?;
        let container = database.container_client("c", None).await?;
        assert_eq!(container.read_throughput(None).await?.and_then(|offer| offer.throughput()), Some(400));
        let replaced = container.begin_replace_throughput(ThroughputProperties::manual(500), None).await?.await?;
        assert_eq!(replaced.into_model()?.throughput(), Some(500));
        assert_eq!(container.read_throughput(None).await?.and_then(|offer| offer.throughput()), Some(500));
        let listed: Vec<ContainerProperties> =
            database.query_containers("SELECT * FROM c", None).await?.try_collect().await?;
        assert_eq!(listed.iter().map(|one| one.id.as_ref()).collect::<Vec<_>>(), ["c"]);
        container.delete(None).await?;
        database.delete(None).await?;
        Ok(())
    })
}
