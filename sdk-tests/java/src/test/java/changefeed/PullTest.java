package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The feed of latest versions, pulled: every start, every scope. */
class PullTest extends Suite {
    private static List<Seen> ofKey(List<Seen> items, String key) {
        return items.stream().filter(item -> item.key().equals(key)).toList();
    }

    @Test
    void from_the_beginning_each_item_arrives_once_as_it_is_now() {
        CosmosContainer container = container("beginning");
        List<Seen> written = new ArrayList<>(write(container, "b", 0, 40));
        container.deleteItem("b-3", new PartitionKey("key-3"), new CosmosItemRequestOptions());
        container.replaceItem(item("b-5", "key-5", 500), "b-5", new PartitionKey("key-5"), null);
        written.remove(new Seen("b-3", "key-3", 3));
        written.remove(new Seen("b-5", "key-5", 5));
        written.add(new Seen("b-5", "key-5", 500));

        Feed.Read read = Feed.drain(container, Feed.beginning().setMaxItemCount(7));
        assertArrived(written, read.seen());
        read.pages().forEach(page -> assertTrue(page.size() <= 7, "a page of " + page.size()));
        Set<String> lsns = new HashSet<>();
        read.items().forEach(item -> assertTrue(
            lsns.add(item.get("pk").asText() + " " + item.get("_lsn")), "a log sequence number twice for a key"));

        Feed.Read nothing = Feed.drain(container, Feed.after(read));
        assertEquals(List.of(), nothing.items());
        List<Seen> later = write(container, "b", 40, 60);
        assertArrived(later, Feed.drain(container, Feed.after(nothing)).seen());
        assertArrived(later, Feed.drain(container, Feed.after(read)).seen());
    }

    @Test
    void from_now_only_what_comes_later_arrives() {
        CosmosContainer container = container("now");
        write(container, "before", 0, 20);
        Feed.Read nothing =
            Feed.drain(container, Feed.now(FeedRange.forFullRange()));
        assertEquals(List.of(), nothing.items());
        List<Seen> later = write(container, "after", 0, 20);
        assertArrived(later, Feed.drain(container, Feed.after(nothing)).seen());
    }

    @Test
    void from_a_time_only_what_was_written_since_arrives() throws Exception {
        CosmosContainer container = container("time");
        write(container, "before", 0, 20);
        // The header carries whole seconds, and `_ts` does too: keep the two sides two seconds apart.
        Thread.sleep(2100);
        Instant time = Instant.now();
        Thread.sleep(1100);
        List<Seen> later = write(container, "after", 0, 20);
        Function<FeedRange, CosmosChangeFeedRequestOptions> since =
            range -> CosmosChangeFeedRequestOptions.createForProcessingFromPointInTime(time, range);

        // Pages of 3: from the second on the time travels together with the continuation.
        Feed.Read read = Feed.drain(container, since.apply(FeedRange.forFullRange()).setMaxItemCount(3));
        assertArrived(later, read.seen());
        FeedRange key = FeedRange.forLogicalPartition(new PartitionKey("key-2"));
        assertEquals(ofKey(later, "key-2"), Feed.drain(container, since.apply(key)).seen());
        List<Seen> evenLater = write(container, "later", 0, 5);
        assertArrived(evenLater, Feed.drain(container, Feed.after(read)).seen());
    }

    @Test
    void feed_ranges_are_disjoint_and_together_the_whole() {
        CosmosContainer container = container("ranges");
        List<Seen> written = write(container, "r", 0, 48);
        List<FeedRange> ranges = container.getFeedRanges();
        assertEquals(2, ranges.size());
        List<Seen> all = new ArrayList<>();
        for (FeedRange range : ranges) {
            FeedRange copy = FeedRange.fromString(range.toString());
            Feed.Read read =
                Feed.drain(container, Feed.beginning(copy).setMaxItemCount(5));
            assertTrue(!read.items().isEmpty() && read.items().size() < 48);
            all.addAll(read.seen());
            assertEquals(List.of(), Feed.drain(container, Feed.after(read)).items());
        }
        assertArrived(written, all);
    }

    /** The SDK works out itself which hash a key has: the server must agree, for both kinds of hash. */
    @ParameterizedTest
    @EnumSource
    void the_feed_of_one_key_holds_that_key_alone(PartitionKeyDefinitionVersion version) {
        CosmosContainer container = container(new CosmosContainerProperties("key-" + version, byKey(version)));
        List<Seen> written = write(container, "k", 0, 48);
        for (String key : KEYS) {
            FeedRange scope = FeedRange.forLogicalPartition(new PartitionKey(key));
            Feed.Read read =
                Feed.drain(container, Feed.beginning(scope).setMaxItemCount(2));
            assertEquals(ofKey(written, key), read.seen());
        }
        FeedRange scope = FeedRange.forLogicalPartition(new PartitionKey("key-1"));
        Feed.Read nothing = Feed.drain(container, Feed.now(scope));
        assertEquals(List.of(), nothing.items());
        List<Seen> later = write(container, "k", 48, 64);
        assertEquals(ofKey(later, "key-1"), Feed.drain(container, Feed.after(nothing)).seen());
    }

    @Test
    void the_feed_of_a_prefix_holds_all_keys_that_begin_with_it() {
        PartitionKeyDefinition definition = new PartitionKeyDefinition().setPaths(List.of("/pk", "/sub"));
        definition.setKind(PartitionKind.MULTI_HASH).setVersion(PartitionKeyDefinitionVersion.V2);
        CosmosContainer container = container(new CosmosContainerProperties("prefix", definition));
        List<Seen> written = new ArrayList<>();
        for (int n = 0; n < 48; n++) {
            String key = KEYS.get(n % KEYS.size());
            PartitionKey whole = new PartitionKeyBuilder().add(key).add("sub-" + n % 3).build();
            container.createItem(item("h-" + n, key, n).put("sub", "sub-" + n % 3), whole, null);
            written.add(new Seen("h-" + n, key, n));
        }
        for (String key : KEYS) {
            FeedRange scope = FeedRange.forLogicalPartition(new PartitionKeyBuilder().add(key).build());
            Feed.Read read = Feed.drain(container, Feed.beginning(scope));
            assertEquals(ofKey(written, key), read.seen());
        }
        PartitionKey whole = new PartitionKeyBuilder().add("key-5").add("sub-2").build();
        FeedRange scope = FeedRange.forLogicalPartition(whole);
        Feed.Read read = Feed.drain(container, Feed.beginning(scope));
        assertEquals(List.of(new Seen("h-5", "key-5", 5)), read.seen());
    }

    @Test
    void any_page_is_a_place_to_go_on_from() {
        CosmosContainer container = container("resume");
        List<Seen> written = write(container, "p", 0, 30);
        List<Seen> arrived = new ArrayList<>();
        CosmosChangeFeedRequestOptions options = Feed.beginning();
        // A new feed for every page, with nothing but the last page's continuation.
        for (int page = 0; page < 50 && arrived.size() < written.size(); page++) {
            FeedResponse<JsonNode> next =
                async(container).queryChangeFeed(options.setMaxItemCount(4), JsonNode.class).byPage().blockFirst();
            next.getResults().forEach(item -> arrived.add(Seen.of(item)));
            options = Feed.after(next.getContinuationToken());
        }
        assertArrived(written, arrived);
    }
}
