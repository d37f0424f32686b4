package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Queries across ranges: Java asks for a plan, then asks each range. */
class QueriesTest extends Suite {
    private CosmosContainer container;

    @BeforeAll
    void fill() {
        container = container("numbers");
        write(container, "n", 0, 48);
        assertEquals(2, Server.SHARED.ranges(path(container)).size());
    }

    private <T> List<T> query(String sql, Class<T> type) {
        return container.queryItems(sql, new CosmosQueryRequestOptions(), type).stream().toList();
    }

    private static List<Integer> numbers(int from, int to) {
        return IntStream.range(from, to).boxed().toList();
    }

    @Test
    void a_filter_with_parameters_finds_exactly_what_it_describes() {
        SqlQuerySpec query = new SqlQuerySpec(
            "SELECT * FROM c WHERE c.value >= @from AND STARTSWITH(c.id, @prefix)",
            List.of(new SqlParameter("@from", 45), new SqlParameter("@prefix", "n-")));
        List<Seen> found = container.queryItems(query, new CosmosQueryRequestOptions(), ObjectNode.class).stream()
            .map(Seen::of).sorted(Comparator.comparing(Seen::value)).toList();
        assertEquals(
            List.of(new Seen("n-45", "key-13", 45), new Seen("n-46", "key-14", 46), new Seen("n-47", "key-15", 47)),
            found);
    }

    @Test
    void order_by_merges_the_ranges_and_resumes_by_continuation() {
        List<Integer> values = new ArrayList<>();
        String continuation = null;
        int pages = 0;
        do {
            CosmosQueryRequestOptions options = new CosmosQueryRequestOptions();
            FeedResponse<JsonNode> page = container
                .queryItems("SELECT * FROM c ORDER BY c.value DESC", options, JsonNode.class)
                .iterableByPage(continuation, 7).iterator().next();
            page.getResults().forEach(item -> values.add(item.get("value").asInt()));
            continuation = page.getContinuationToken();
            pages++;
        } while (continuation != null);
        assertEquals(numbers(0, 48).stream().sorted((a, b) -> b - a).toList(), values);
        assertTrue(pages >= 7, "48 items in pages of at most 7, not in " + pages);
    }

    @Test
    void limits_hold_across_ranges() {
        assertEquals(numbers(0, 5), query("SELECT TOP 5 VALUE c.value FROM c ORDER BY c.value", Integer.class));
        assertEquals(
            numbers(10, 20), query("SELECT VALUE c.value FROM c ORDER BY c.value OFFSET 10 LIMIT 10", Integer.class));
        assertEquals(3, query("SELECT TOP 3 * FROM c", JsonNode.class).size());
    }

    @Test
    void aggregates_count_every_range() {
        assertEquals(List.of(48), query("SELECT VALUE COUNT(1) FROM c", Integer.class));
        // The SDK adds up what the ranges answer as doubles.
        assertEquals(List.of(47 * 48 / 2.0), query("SELECT VALUE SUM(c.value) FROM c", Double.class));
        assertEquals(List.of(0), query("SELECT VALUE MIN(c.value) FROM c", Integer.class));
        assertEquals(List.of(47), query("SELECT VALUE MAX(c.value) FROM c", Integer.class));
        assertEquals(List.of(23.5), query("SELECT VALUE AVG(c.value) FROM c", Double.class));
    }

    @Test
    void groups_and_distinct_values_are_put_together_from_all_ranges() {
        List<String> distinct = new ArrayList<>(query("SELECT DISTINCT VALUE c.pk FROM c", String.class));
        distinct.sort(null);
        assertEquals(KEYS.stream().sorted().toList(), distinct);
        List<String> groups = new ArrayList<>();
        for (JsonNode group
            : query("SELECT c.pk, COUNT(1) AS n, SUM(c.value) AS total FROM c GROUP BY c.pk", JsonNode.class)) {
            groups.add(group.get("pk").asText() + " " + group.get("n") + " " + group.get("total").asInt());
        }
        groups.sort(null);
        assertEquals(IntStream.range(0, 16).mapToObj(n -> "key-" + n + " 3 " + (3 * n + 48)).sorted().toList(), groups);
    }

    @Test
    void a_key_or_a_feed_range_limits_what_a_query_sees() {
        CosmosQueryRequestOptions key = new CosmosQueryRequestOptions().setPartitionKey(new PartitionKey("key-3"));
        assertEquals(
            List.of(3, 19, 35),
            container.queryItems("SELECT VALUE c.value FROM c ORDER BY c.value", key, Integer.class).stream().toList());

        List<FeedRange> ranges = container.getFeedRanges();
        assertEquals(2, ranges.size());
        List<Integer> all = new ArrayList<>();
        for (FeedRange range : ranges) {
            CosmosQueryRequestOptions options =
                new CosmosQueryRequestOptions().setFeedRange(FeedRange.fromString(range.toString()));
            List<Integer> part =
                container.queryItems("SELECT VALUE c.value FROM c", options, Integer.class).stream().toList();
            assertTrue(!part.isEmpty() && part.size() < 48, "both ranges hold items, not " + part);
            all.addAll(part);
        }
        all.sort(null);
        assertEquals(numbers(0, 48), all);
    }

    @Test
    void a_query_with_a_mistake_is_refused() {
        assertStatus(400, () -> query("SELEC * FROM c", JsonNode.class));
    }
}
