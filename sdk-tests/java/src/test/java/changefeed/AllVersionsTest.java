package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The feed of all versions and deletes, pulled. */
class AllVersionsTest extends Suite {
    private static CosmosChangeFeedRequestOptions now(FeedRange range) {
        return Feed.now(range).allVersionsAndDeletes();
    }

    private static CosmosChangeFeedRequestOptions after(Feed.Read read) {
        return Feed.after(read).allVersionsAndDeletes();
    }

    /** Writes five versions of an item and deletes it; answers with what its feed must say. */
    static List<String> live(CosmosContainer container, String id, String key) {
        PartitionKey pk = new PartitionKey(key);
        container.createItem(item(id, key, 1), pk, null);
        container.replaceItem(item(id, key, 2), id, pk, null);
        container.upsertItem(item(id, key, 3), pk, null);
        container.patchItem(id, pk, CosmosPatchOperations.create().increment("/value", 1L), ObjectNode.class);
        CosmosBatch batch = CosmosBatch.createCosmosBatch(pk);
        batch.replaceItemOperation(id, item(id, key, 5));
        assertTrue(container.executeCosmosBatch(batch).isSuccessStatusCode());
        container.deleteItem(id, pk, new CosmosItemRequestOptions());
        return List.of(
            "create " + id + " 1", "replace " + id + " 2", "replace " + id + " 3", "replace " + id + " 4",
            "replace " + id + " 5", "delete " + id + " 5");
    }

    static String shown(JsonNode change) {
        String operation = change.get("metadata").get("operationType").asText();
        JsonNode image = change.get(operation.equals("delete") ? "previous" : "current");
        return operation + " " + image.get("id").asText() + " " + image.get("value").asInt();
    }

    private static List<String> of(List<JsonNode> changes, String id) {
        return changes.stream().map(AllVersionsTest::shown).filter(shown -> shown.contains(" " + id + " ")).toList();
    }

    @Test
    void every_version_and_the_delete_arrive_in_order() {
        CosmosContainer container = containerOfAllVersions("versions");
        write(container, "before", 0, 16);
        Feed.Read nothing = Feed.drain(container, now(FeedRange.forFullRange()));
        assertEquals(List.of(), nothing.items());

        List<String> first = live(container, "first", "key-0");
        List<String> second = live(container, "second", "key-1");
        Feed.Read read = Feed.drain(container, after(nothing).setMaxItemCount(2));
        assertEquals(first, of(read.items(), "first"));
        assertEquals(second, of(read.items(), "second"));
        assertEquals(12, read.items().size());
        List<JsonNode> changes =
            read.items().stream().filter(change -> shown(change).contains("first")).toList();
        long previous = 0;
        for (JsonNode change : changes) {
            JsonNode metadata = change.get("metadata");
            assertEquals(previous, metadata.get("previousImageLSN").asLong(0), () -> change.toString());
            assertTrue(metadata.get("lsn").asLong() > previous, () -> change.toString());
            assertTrue(metadata.get("crts").asLong() > 1_700_000_000L, () -> change.toString());
            previous = metadata.get("lsn").asLong();
        }
        JsonNode delete = changes.get(5);
        assertTrue(delete.path("current").isEmpty(), () -> delete.toString());
        assertEquals(false, delete.get("metadata").path("timeToLiveExpired").asBoolean());

        assertEquals(List.of(), Feed.drain(container, after(read)).items());
        List<String> third = live(container, "third", "key-2");
        assertEquals(third, of(Feed.drain(container, after(read)).items(), "third"));
    }

    @Test
    void each_scope_holds_its_own_versions_alone() {
        CosmosContainer container = containerOfAllVersions("scopes");
        List<FeedRange> ranges = container.getFeedRanges();
        List<Feed.Read> starts = new ArrayList<>();
        ranges.forEach(range -> starts.add(Feed.drain(container, now(range))));
        FeedRange key = FeedRange.forLogicalPartition(new PartitionKey("key-3"));
        Feed.Read startOfKey = Feed.drain(container, now(key));
        KEYS.forEach(each -> live(container, "of-" + each, each));

        Feed.Read ofKey = Feed.drain(container, after(startOfKey));
        assertEquals(6, ofKey.items().size());
        assertEquals(6, of(ofKey.items(), "of-key-3").size());
        List<String> all = new ArrayList<>();
        for (Feed.Read start : starts) {
            List<JsonNode> part = Feed.drain(container, after(start)).items();
            assertTrue(!part.isEmpty() && part.size() < 96);
            part.forEach(change -> all.add(shown(change)));
        }
        assertEquals(96, all.size());
        assertEquals(96, all.stream().distinct().count());
    }

    @Test
    void it_starts_neither_at_the_beginning_nor_at_a_time() {
        assertThrows(IllegalStateException.class, () -> Feed.beginning().allVersionsAndDeletes());
        CosmosChangeFeedRequestOptions time =
            CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(Instant.now(), FeedRange.forFullRange());
        assertThrows(IllegalStateException.class, time::allVersionsAndDeletes);
    }
}
