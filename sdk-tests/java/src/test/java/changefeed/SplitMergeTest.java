package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * Ranges split and merge while a feed is being read: every item still arrives once and in order.
 *
 * <p>A feed that is being read meets one split or one merge here. In gateway mode the SDK reads the ranges again only
 * once for a page: {@code ChangeFeedFetcher} goes on after a {@code GoneException}, but a 410 of the gateway is a plain
 * {@code CosmosException}. Ranges that change twice during one page, as they do in no real account, end such a feed
 * with that 410. Its continuations are good for any number of changes.
 */
class SplitMergeTest extends Suite {
    /** The SDK reads 256 pages ahead, whatever it is told: with pages of one item it must read on after the change. */
    private static final int MANY = 300;

    private static List<Seen> begin(Iterator<FeedResponse<JsonNode>> feed, List<String> continuations) {
        List<Seen> arrived = new ArrayList<>();
        for (int page = 0; page < 4; page++) {
            FeedResponse<JsonNode> next = feed.next();
            next.getResults().forEach(item -> arrived.add(Seen.of(item)));
            continuations.add(next.getContinuationToken());
        }
        assertEquals(4, arrived.size());
        return arrived;
    }

    private static List<Seen> joined(List<Seen> first, List<Seen> second) {
        return Stream.concat(first.stream(), second.stream()).toList();
    }

    /** Both ranges of a new container become two: four in all. */
    private List<Server.Range> splitAll(CosmosContainer container) {
        for (Server.Range range : Server.SHARED.ranges(path(container))) {
            assertEquals(2, Server.SHARED.split(path(container), range.id()).size());
        }
        List<Server.Range> ranges = Server.SHARED.ranges(path(container));
        assertEquals(4, ranges.size());
        return ranges;
    }

    private void splitFirst(CosmosContainer container) {
        Server.SHARED.split(path(container), Server.SHARED.ranges(path(container)).get(0).id());
    }

    private void mergeAll(CosmosContainer container) {
        List<Server.Range> ranges = Server.SHARED.ranges(path(container));
        Server.SHARED.merge(path(container), ranges.get(0), ranges.get(1));
        assertEquals(1, Server.SHARED.ranges(path(container)).size());
    }

    @Test
    void a_feed_goes_on_through_a_split() {
        CosmosContainer container = container("split");
        goesOn(container, () -> splitFirst(container));
        assertEquals(3, Server.SHARED.ranges(path(container)).size());
    }

    @Test
    void a_feed_goes_on_through_a_merge() {
        CosmosContainer container = container("merge");
        goesOn(container, () -> mergeAll(container));
    }

    private void goesOn(CosmosContainer container, Runnable change) {
        List<Seen> written = write(container, "x", 0, MANY);
        Iterator<FeedResponse<JsonNode>> feed = pages(container, Feed.beginning().setMaxItemCount(1));
        List<String> continuations = new ArrayList<>();
        List<Seen> begun = begin(feed, continuations);
        change.run();
        List<Seen> all = joined(written, write(container, "x", MANY, MANY + 16));

        Feed.Read rest = Feed.drain(feed);
        assertArrived(all, joined(begun, rest.seen()));
        assertArrived(all, joined(begun, Feed.drain(container, Feed.after(continuations.get(3))).seen()));
        assertEquals(List.of(), Feed.drain(container, Feed.after(rest)).items());
        List<Seen> later = write(container, "x", MANY + 16, MANY + 32);
        assertArrived(later, Feed.drain(container, Feed.after(rest)).seen());
    }

    /** Reads four pages, each with nothing but the continuation of the one before. */
    private List<JsonNode> fourPages(CosmosContainer container, AtomicReference<CosmosChangeFeedRequestOptions> place) {
        List<JsonNode> items = new ArrayList<>();
        for (int page = 0; page < 4; page++) {
            CosmosChangeFeedRequestOptions options = place.get();
            FeedResponse<JsonNode> next =
                async(container).queryChangeFeed(options.setMaxItemCount(3), JsonNode.class).byPage().blockFirst();
            items.addAll(next.getResults());
            place.set(Feed.after(next.getContinuationToken()));
        }
        assertEquals(12, items.size());
        return items;
    }

    @Test
    void continuations_are_good_for_any_number_of_splits_and_merges() {
        CosmosContainer container = container("both");
        List<Seen> written = write(container, "c", 0, 80);
        var place = new AtomicReference<>(Feed.beginning());
        List<JsonNode> arrived = new ArrayList<>(fourPages(container, place));
        List<Server.Range> four = splitAll(container);
        arrived.addAll(fourPages(container, place));
        // Across the border of the two ranges that the container began with.
        Server.SHARED.merge(path(container), four.get(1), four.get(2));
        assertEquals(3, Server.SHARED.ranges(path(container)).size());
        arrived.addAll(fourPages(container, place));
        List<Seen> all = joined(written, write(container, "c", 80, 96));
        Feed.Read rest = Feed.drain(container, place.get());
        arrived.addAll(rest.items());
        assertArrived(all, arrived.stream().map(Seen::of).toList());
        List<Seen> later = write(container, "c", 96, 112);
        assertArrived(later, Feed.drain(container, Feed.after(rest)).seen());
    }

    @Test
    void feed_ranges_and_keys_taken_before_stay_good() {
        CosmosContainer container = container("scopes");
        List<Seen> written = write(container, "f", 0, 48);
        List<FeedRange> old = container.getFeedRanges();
        List<Feed.Read> reads = old.stream().map(range -> Feed.drain(container, Feed.beginning(range))).toList();
        FeedRange key = FeedRange.forLogicalPartition(new PartitionKey("key-4"));
        Feed.Read ofKey = Feed.drain(container, Feed.beginning(key));
        assertEquals(3, ofKey.items().size());

        List<Server.Range> four = splitAll(container);
        Server.SHARED.merge(path(container), four.get(1), four.get(2));
        List<Seen> later = write(container, "f", 48, 64);
        List<Seen> fromTheBeginning = new ArrayList<>();
        List<Seen> resumed = new ArrayList<>();
        for (int n = 0; n < old.size(); n++) {
            fromTheBeginning.addAll(Feed.drain(container, Feed.beginning(old.get(n))).seen());
            resumed.addAll(Feed.drain(container, Feed.after(reads.get(n))).seen());
        }
        assertArrived(joined(written, later), fromTheBeginning);
        assertArrived(later, resumed);
        assertEquals(List.of(new Seen("f-52", "key-4", 52)), Feed.drain(container, Feed.after(ofKey)).seen());
        assertEquals(3, container.getFeedRanges().size());
    }

    @Test
    void all_versions_go_on_through_a_split_and_a_merge() {
        CosmosContainer container = containerOfAllVersions("versions");
        Feed.Read start = Feed.drain(container, Feed.now(FeedRange.forFullRange()).allVersionsAndDeletes());
        List<String> expected = new ArrayList<>();
        for (int round = 0; round < 3; round++) {
            expected.addAll(liveAll(container, "life-" + round));
        }
        assertTrue(expected.size() > 256 + 4, "more than the SDK reads ahead");
        Iterator<FeedResponse<JsonNode>> feed =
            pages(container, Feed.after(start).allVersionsAndDeletes().setMaxItemCount(1));
        List<JsonNode> arrived = new ArrayList<>();
        for (int page = 0; page < 4; page++) {
            arrived.addAll(feed.next().getResults());
        }
        assertEquals(4, arrived.size());
        splitFirst(container);
        expected.addAll(liveAll(container, "split"));
        Feed.Read read = Feed.drain(feed);
        arrived.addAll(read.items());
        assertVersions(expected, arrived);

        // The child next to the range that did not split, and that range: across the old border.
        List<Server.Range> three = Server.SHARED.ranges(path(container));
        expected.addAll(liveAll(container, "unread"));
        Server.SHARED.merge(path(container), three.get(1), three.get(2));
        expected.addAll(liveAll(container, "merged"));
        Feed.Read rest = Feed.drain(container, Feed.after(read).allVersionsAndDeletes());
        arrived.addAll(rest.items());
        assertVersions(expected, arrived);
        assertEquals(List.of(), Feed.drain(container, Feed.after(rest).allVersionsAndDeletes()).items());
    }

    private static List<String> liveAll(CosmosContainer container, String name) {
        List<String> expected = new ArrayList<>();
        KEYS.forEach(key -> expected.addAll(AllVersionsTest.live(container, name + " of " + key + ":", key)));
        return expected;
    }

    private static void assertVersions(List<String> expected, List<JsonNode> arrived) {
        List<String> shown = arrived.stream().map(AllVersionsTest::shown).toList();
        for (String key : KEYS) {
            assertEquals(
                expected.stream().filter(change -> change.contains(key + ":")).toList(),
                shown.stream().filter(change -> change.contains(key + ":")).toList());
        }
        assertEquals(expected.size(), shown.size());
    }

    @Test
    void queries_and_writes_never_notice() {
        CosmosContainer container = container("queries");
        write(container, "q", 0, 32);
        assertEquals(32, count(container, new CosmosQueryRequestOptions()));
        List<Server.Range> four = splitAll(container);
        assertEquals(32, count(container, new CosmosQueryRequestOptions()));
        container.getFeedRanges().forEach(range -> {
            int found = count(container, new CosmosQueryRequestOptions().setFeedRange(range));
            assertTrue(found > 0, () -> "every range holds items of this suite, not " + range);
        });
        write(container, "q", 32, 48);
        Server.SHARED.merge(path(container), four.get(1), four.get(2));
        assertEquals(48, count(container, new CosmosQueryRequestOptions()));
        JsonNode item = container.readItem("q-47", new PartitionKey("key-15"), JsonNode.class).getItem();
        assertEquals(new Seen("q-47", "key-15", 47), Seen.of(item));
    }

    private static int count(CosmosContainer container, CosmosQueryRequestOptions options) {
        List<Integer> counts =
            container.queryItems("SELECT VALUE COUNT(1) FROM c", options, Integer.class).stream().toList();
        assertEquals(1, counts.size());
        return counts.get(0);
    }
}
