package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchOperationResult;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Items one by one and in batches. */
class ItemsTest extends Suite {
    private static final PartitionKey A = new PartitionKey("a");

    private static CosmosItemRequestOptions ifMatch(String etag) {
        return new CosmosItemRequestOptions().setIfMatchETag(etag);
    }

    @Test
    void an_item_is_created_read_replaced_and_deleted_under_its_etag() {
        CosmosContainer container = container("etags");
        CosmosItemResponse<ObjectNode> created = container.createItem(item("1", "a", 1), A, null);
        assertEquals(201, created.getStatusCode());
        assertEquals(created.getItem().get("_etag").asText(), created.getETag());
        assertStatus(409, () -> container.createItem(item("1", "a", 2), A, null));

        CosmosItemResponse<ObjectNode> read = container.readItem("1", A, ObjectNode.class);
        assertEquals(200, read.getStatusCode());
        assertEquals(created.getItem(), read.getItem());
        CosmosItemResponse<ObjectNode> unchanged = container.readItem(
            "1", A, new CosmosItemRequestOptions().setIfNoneMatchETag(read.getETag()), ObjectNode.class);
        assertEquals(304, unchanged.getStatusCode());

        CosmosItemResponse<ObjectNode> replaced =
            container.replaceItem(read.getItem().put("value", 2), "1", A, ifMatch(read.getETag()));
        assertEquals(200, replaced.getStatusCode());
        assertEquals(2, replaced.getItem().get("value").asInt());
        assertNotEquals(read.getETag(), replaced.getETag());
        assertEquals(read.getItem().get("_rid"), replaced.getItem().get("_rid"));

        String stale = read.getETag();
        assertStatus(412, () -> container.replaceItem(item("1", "a", 3), "1", A, ifMatch(stale)));
        assertStatus(412, () -> container.upsertItem(item("1", "a", 3), A, ifMatch(stale)));
        assertStatus(412, () -> container.deleteItem("1", A, ifMatch(stale)));
        assertEquals(replaced.getItem(), container.readItem("1", A, ObjectNode.class).getItem());

        assertEquals(204, container.deleteItem("1", A, ifMatch(replaced.getETag())).getStatusCode());
        assertStatus(404, () -> container.readItem("1", A, ObjectNode.class));
        assertStatus(404, () -> container.replaceItem(item("1", "a", 3), "1", A, null));
        assertStatus(404, () -> container.deleteItem("1", A, new CosmosItemRequestOptions()));

        assertEquals(201, container.upsertItem(item("1", "a", 4), A, null).getStatusCode());
        assertEquals(200, container.upsertItem(item("1", "a", 5), A, null).getStatusCode());
        assertEquals(5, container.readItem("1", A, ObjectNode.class).getItem().get("value").asInt());
        assertStatus(404, () -> container.readItem("1", new PartitionKey("b"), ObjectNode.class));
    }

    @Test
    void writes_answer_without_the_item_if_the_client_does_not_want_it() {
        CosmosContainer container = container("minimal");
        CosmosItemRequestOptions quiet = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
        CosmosItemResponse<ObjectNode> created = container.createItem(item("1", "a", 1), A, quiet);
        assertEquals(201, created.getStatusCode());
        assertNull(created.getItem());
        assertEquals(container.readItem("1", A, ObjectNode.class).getETag(), created.getETag());
    }

    @Test
    void keys_of_every_kind_lead_back_to_their_item() {
        CosmosContainer container = container("kinds");
        Map<String, PartitionKey> keys = new TreeMap<>(Map.of(
            "text", new PartitionKey("ünï \"c\" 🦀"), "empty", new PartitionKey(""), "number", new PartitionKey(-1.5),
            "true", new PartitionKey(true), "false", new PartitionKey(false), "null", new PartitionKey(null),
            "none", PartitionKey.NONE));
        Map<String, String> json = Map.of(
            "text", "\"ünï \\\"c\\\" 🦀\"", "empty", "\"\"", "number", "-1.5", "true", "true", "false", "false",
            "null", "null");
        keys.forEach((kind, key) -> {
            ObjectNode item = Server.JSON.createObjectNode().put("id", "id of " + kind + " + ü=%");
            if (json.containsKey(kind)) {
                item.set("pk", parsed(json.get(kind)));
            }
            assertEquals(201, container.createItem(item, key, null).getStatusCode(), kind);
        });
        keys.forEach((kind, key) -> {
            ObjectNode read = container.readItem("id of " + kind + " + ü=%", key, ObjectNode.class).getItem();
            assertEquals(json.containsKey(kind) ? parsed(json.get(kind)) : null, read.get("pk"), kind);
        });
        assertStatus(400, () -> container.createItem(item("wrong", "a", 1), new PartitionKey("b"), null));
    }

    private static JsonNode parsed(String json) {
        try {
            return Server.JSON.readTree(json);
        } catch (java.io.IOException error) {
            throw new AssertionError(error);
        }
    }

    @Test
    void hierarchical_keys_are_found_by_the_whole_key_and_by_a_prefix() {
        PartitionKeyDefinition definition = new PartitionKeyDefinition();
        definition.setKind(PartitionKind.MULTI_HASH);
        definition.setVersion(PartitionKeyDefinitionVersion.V2);
        definition.setPaths(List.of("/tenant", "/user"));
        CosmosContainer container = container(new CosmosContainerProperties("hierarchy", definition));
        for (String tenant : List.of("t1", "t2")) {
            for (int user = 0; user < 3; user++) {
                ObjectNode item =
                    Server.JSON.createObjectNode().put("id", "i").put("tenant", tenant).put("user", "u" + user);
                container.createItem(item, new PartitionKeyBuilder().add(tenant).add("u" + user).build(), null);
            }
        }
        PartitionKey whole = new PartitionKeyBuilder().add("t1").add("u2").build();
        assertEquals("u2", container.readItem("i", whole, ObjectNode.class).getItem().get("user").asText());
        List<String> users = container
            .readAllItems(new PartitionKeyBuilder().add("t1").build(), ObjectNode.class).stream()
            .map(item -> item.get("tenant").asText() + item.get("user").asText()).sorted().toList();
        assertEquals(List.of("t1u0", "t1u1", "t1u2"), users);
    }

    @Test
    void a_patch_applies_all_its_operations_or_none() throws Exception {
        CosmosContainer container = container("patch");
        JsonNode before = Server.JSON.readTree(
            "{\"id\":\"1\",\"pk\":\"a\",\"n\":1,\"old\":true,\"from\":\"x\",\"list\":[1,3],\"deep\":{\"a\":1}}");
        container.createItem(before, A, null);
        CosmosPatchOperations operations = CosmosPatchOperations.create()
            .add("/list/1", 2).add("/list/-", 4).set("/deep/b", "new").replace("/deep/a", 9).increment("/n", 41L)
            .remove("/old").move("/from", "/to");
        CosmosItemResponse<ObjectNode> patched = container.patchItem("1", A, operations, ObjectNode.class);
        assertEquals(200, patched.getStatusCode());
        String etag = patched.getETag();
        ObjectNode item = container.readItem("1", A, ObjectNode.class).getItem();
        assertEquals(patched.getItem(), item);
        item.remove(List.of("_rid", "_self", "_etag", "_ts", "_attachments"));
        JsonNode after = Server.JSON.readTree(
            "{\"id\":\"1\",\"pk\":\"a\",\"n\":42,\"list\":[1,2,3,4],\"deep\":{\"a\":9,\"b\":\"new\"},\"to\":\"x\"}");
        assertEquals(after, item);

        CosmosPatchOperations half = CosmosPatchOperations.create().set("/n", 0).remove("/missing");
        assertStatus(400, () -> container.patchItem("1", A, half, ObjectNode.class));
        CosmosPatchItemRequestOptions only42 =
            new CosmosPatchItemRequestOptions().setFilterPredicate("FROM c WHERE c.n = 42");
        CosmosPatchOperations set7 = CosmosPatchOperations.create().set("/n", 7);
        assertEquals(200, container.patchItem("1", A, set7, only42, ObjectNode.class).getStatusCode());
        assertStatus(412, () -> container.patchItem("1", A, set7, only42, ObjectNode.class));
        CosmosPatchItemRequestOptions stale = new CosmosPatchItemRequestOptions();
        stale.setIfMatchETag(etag);
        assertStatus(412, () -> container.patchItem("1", A, set7, stale, ObjectNode.class));
        assertEquals(7, container.readItem("1", A, ObjectNode.class).getItem().get("n").asInt());
    }

    @Test
    void a_batch_is_done_as_a_whole_or_not_at_all() {
        CosmosContainer container = container("batch");
        container.createItem(item("old", "a", 1), A, null);
        container.createItem(item("gone", "a", 1), A, null);
        CosmosBatch batch = CosmosBatch.createCosmosBatch(A);
        batch.createItemOperation(item("new", "a", 1));
        batch.upsertItemOperation(item("up", "a", 2));
        batch.replaceItemOperation("old", item("old", "a", 3));
        batch.patchItemOperation("old", CosmosPatchOperations.create().increment("/value", 1L));
        batch.readItemOperation("old");
        batch.deleteItemOperation("gone");
        CosmosBatchResponse done = container.executeCosmosBatch(batch);
        assertTrue(done.isSuccessStatusCode());
        assertEquals(List.of(201, 201, 200, 200, 200, 204), statuses(done));
        assertEquals(4, done.getResults().get(4).getItem(ObjectNode.class).get("value").asInt());
        assertEquals(List.of("new", "old", "up"), ids(container));

        List<String> lsns = Feed.drain(container, Feed.beginning()).items().stream()
            .map(item -> item.get("_lsn").asText()).distinct().toList();
        assertEquals(1, lsns.size(), "one batch is one log sequence number");

        CosmosBatch failing = CosmosBatch.createCosmosBatch(A);
        failing.createItemOperation(item("never", "a", 1));
        failing.createItemOperation(item("old", "a", 1));
        failing.deleteItemOperation("new");
        CosmosBatchResponse failed = container.executeCosmosBatch(failing);
        assertFalse(failed.isSuccessStatusCode());
        assertEquals(409, failed.getStatusCode());
        assertEquals(List.of(424, 409, 424), statuses(failed));
        assertEquals(List.of("new", "old", "up"), ids(container));
    }

    private static List<Integer> statuses(CosmosBatchResponse response) {
        return response.getResults().stream().map(CosmosBatchOperationResult::getStatusCode).toList();
    }

    private static List<String> ids(CosmosContainer container) {
        return container.readAllItems(A, ObjectNode.class).stream()
            .map(item -> item.get("id").asText()).sorted().toList();
    }

    @Test
    void bulk_operations_each_have_their_own_outcome() {
        CosmosContainer container = container("bulk");
        container.createItem(item("bulk-7", KEYS.get(7), 7), new PartitionKey(KEYS.get(7)), null);
        List<CosmosItemOperation> operations = new ArrayList<>();
        IntStream.range(0, 40).forEach(n -> {
            String key = KEYS.get(n % KEYS.size());
            ObjectNode item = item("bulk-" + n, key, n);
            operations.add(CosmosBulkOperations.getCreateItemOperation(item, new PartitionKey(key)));
        });
        Map<String, Integer> outcome = new TreeMap<>();
        container.executeBulkOperations(operations).forEach(response -> {
            ObjectNode item = response.getOperation().getItem();
            outcome.put(item.get("id").asText(), response.getResponse().getStatusCode());
        });
        Map<String, Integer> expected = new TreeMap<>();
        IntStream.range(0, 40).forEach(n -> expected.put("bulk-" + n, n == 7 ? 409 : 201));
        assertEquals(expected, outcome);
    }

    @Test
    void many_items_are_read_at_once() {
        CosmosContainer container = container("many");
        List<Seen> written = write(container, "many", 0, 30);
        List<CosmosItemIdentity> wanted = new ArrayList<>();
        written.subList(5, 25)
            .forEach(item -> wanted.add(new CosmosItemIdentity(new PartitionKey(item.key()), item.id())));
        wanted.add(new CosmosItemIdentity(A, "missing"));
        List<Seen> found = container.readMany(wanted, ObjectNode.class).getResults().stream().map(Seen::of).toList();
        assertEquals(20, found.size());
        assertEquals(new TreeSet<>(ids(written.subList(5, 25))), new TreeSet<>(ids(found)));
    }

    private static List<String> ids(List<Seen> items) {
        return items.stream().map(Seen::id).toList();
    }
}
