package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedProcessorState;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** How far a processor is behind, as Java works it out from numbers that the server gives. */
class EstimatorTest extends Suite {
    private record Stage(CosmosContainer feed, Leases leases) {}

    private Stage stage(String name, Dialect dialect) {
        String id = name + "-" + dialect.feed();
        Leases leases = new Leases(container(new CosmosContainerProperties(id + "-leases", "/id")));
        return new Stage(containerFor(dialect, id), leases);
    }

    private Running start(Dialect dialect, Stage stage, int ranges) {
        return Running.start(
            dialect, async(stage.feed()), async(stage.leases().container()), stage.leases(), dialect.options(""),
            ranges, changes -> {});
    }

    /** A processor that never starts: it only looks. */
    private ChangeFeedProcessor observer(Dialect dialect, Stage stage) {
        return dialect.processor(
            "observer", async(stage.feed()), async(stage.leases().container()), dialect.options(""), changes -> {});
    }

    private static Map<String, Integer> lag(ChangeFeedProcessor processor) {
        Map<String, Integer> lag = new TreeMap<>();
        for (ChangeFeedProcessorState state : processor.getCurrentState().block()) {
            lag.put(state.getLeaseToken(), state.getEstimatedLag());
        }
        return lag;
    }

    private static String token(Dialect dialect, Server.Range range) {
        return dialect == Dialect.CHANGES ? range.id() : range.min() + "-" + range.max();
    }

    @ParameterizedTest
    @EnumSource
    void the_lag_of_one_range_is_what_waits_in_it(Dialect dialect) {
        Stage stage = stage("one", dialect);
        List<Server.Range> two = Server.SHARED.ranges(path(stage.feed()));
        String token = token(dialect, Server.SHARED.merge(path(stage.feed()), two.get(0), two.get(1)));
        ChangeFeedProcessor observer = observer(dialect, stage);
        assertEquals(Map.of(), lag(observer), "nobody has ever started");
        try (Running running = start(dialect, stage, 1)) {
            running.assertHandled(write(stage.feed(), "a", 0, 20));
            Leases.until(() -> lag(observer), Map.of(token, 0)::equals);
            assertEquals(Map.of(token, 0), lag(running.processor));
            assertEquals(Running.HOST, observer.getCurrentState().block().get(0).getHostName());
        }
        write(stage.feed(), "b", 0, 7);
        assertEquals(Map.of(token, 7), lag(observer));
        write(stage.feed(), "b", 0, 7);
        // Latest versions: seven items wait, but their oldest change is no longer there to be read.
        assertEquals(Map.of(token, dialect == Dialect.CHANGES ? 7 : 14), lag(observer));
        if (dialect == Dialect.CHANGES) {
            // Its keys are made of owner, lease and log sequence numbers.
            assertEquals(List.of(7), List.copyOf(observer.getEstimatedLag().block().values()));
        } else {
            assertThrows(UnsupportedOperationException.class, () -> observer.getEstimatedLag().block());
        }
        try (Running running = start(dialect, stage, 1)) {
            Leases.until(running::seen, seen -> seen.size() >= (dialect == Dialect.ALL_VERSIONS ? 14 : 7));
            Leases.until(() -> lag(observer), Map.of(token, 0)::equals);
        }
    }

    @ParameterizedTest
    @EnumSource
    void the_lag_of_two_ranges_is_told_apart(Dialect dialect) {
        Stage stage = stage("two", dialect);
        List<Server.Range> two = Server.SHARED.ranges(path(stage.feed()));
        List<List<String>> keys = keysOfRanges(stage.feed());
        ChangeFeedProcessor observer = observer(dialect, stage);
        handleAll(dialect, stage, observer, two);
        write(stage, keys, 5, 3);
        assertEquals(lags(dialect, two, 5, 3), lag(observer));
        write(stage, keys, 0, 2);
        // All versions since the checkpoint; the other processor counts what it would be given, each item once.
        assertEquals(lags(dialect, two, 5, dialect == Dialect.CHANGES ? 3 : 5), lag(observer));
        try (Running running = start(dialect, stage, 2)) {
            int waiting = dialect == Dialect.ALL_VERSIONS ? 10 : 8;
            Leases.until(running::seen, seen -> seen.size() >= waiting);
            Leases.until(() -> lag(observer), lags(dialect, two, 0, 0)::equals);
            assertEquals(waiting, running.seen().size());
        }
    }

    /** Has everything handled, in both ranges, by a processor that then stops. */
    private void handleAll(
        Dialect dialect, Stage stage, ChangeFeedProcessor observer, List<Server.Range> two) {
        try (Running running = start(dialect, stage, 2)) {
            running.assertHandled(write(stage.feed(), "a", 0, 20));
            Leases.until(() -> lag(observer), lags(dialect, two, 0, 0)::equals);
        }
    }

    @ParameterizedTest
    @EnumSource
    void the_lag_goes_on_through_a_split(Dialect dialect) {
        Stage stage = stage("split", dialect);
        Server.Range left = Server.SHARED.ranges(path(stage.feed())).get(0);
        ChangeFeedProcessor observer = observer(dialect, stage);
        List<List<String>> keys;
        List<Server.Range> three;
        try (Running running = start(dialect, stage, 2)) {
            running.assertHandled(write(stage.feed(), "a", 0, 20));
            Server.SHARED.split(path(stage.feed()), left.id());
            three = Server.SHARED.ranges(path(stage.feed()));
            stage.leases().untilOwned(3, Running.HOST);
            keys = keysOfRanges(stage.feed());
            Leases.until(() -> lag(observer), lags(dialect, three, 0, 0, 0)::equals);
        }
        write(stage, keys, 4, 2, 6);
        assertEquals(lags(dialect, three, 4, 2, 6), lag(observer));
    }

    /** Leases by range id are not made for merges: the SDK's documentation says so. */
    @ParameterizedTest
    @EnumSource(names = "CHANGES", mode = EnumSource.Mode.EXCLUDE)
    void the_lag_goes_on_through_a_merge(Dialect dialect) {
        Stage stage = stage("merge", dialect);
        List<Server.Range> two = Server.SHARED.ranges(path(stage.feed()));
        List<List<String>> keys = keysOfRanges(stage.feed());
        ChangeFeedProcessor observer = observer(dialect, stage);
        handleAll(dialect, stage, observer, two);
        List<Integer> newest = write(stage, keys, 1, 2);
        assertEquals(lags(dialect, two, 1, 2), lag(observer));
        Server.SHARED.merge(path(stage.feed()), two.get(0), two.get(1));
        // The merged range goes on above both, and one sequence runs through the keys of both leases.
        int end = Math.max(newest.get(0), newest.get(1));
        int left = end - newest.get(0) + 1;
        int right = end - newest.get(1) + 2;
        assertEquals(lags(dialect, two, left, right), lag(observer));
        write(stage, keys, 5, 3);
        assertEquals(lags(dialect, two, left + 8, right + 8), lag(observer));
        try (Running running = start(dialect, stage, 2)) {
            Leases.until(() -> lag(observer), lags(dialect, two, 0, 0)::equals);
        }
    }

    /** A lease that has no continuation yet is behind by everything. */
    @ParameterizedTest
    @EnumSource(names = "ALL_VERSIONS", mode = EnumSource.Mode.EXCLUDE)
    void a_processor_that_handled_nothing_is_behind_by_all_changes(Dialect dialect) {
        Stage stage = stage("none", dialect);
        List<Server.Range> two = Server.SHARED.ranges(path(stage.feed()));
        KEYS.forEach(key -> stage.feed().createItem(item("x", key, 0), new PartitionKey(key), null));
        List<Integer> counts = stage.feed().getFeedRanges().stream().map(range -> stage.feed()
            .queryItems("SELECT VALUE c.id FROM c", new CosmosQueryRequestOptions().setFeedRange(range), String.class)
            .stream().toList().size()).toList();
        ChangeFeedProcessor refusing = dialect.processor(
            Running.HOST, async(stage.feed()), async(stage.leases().container()), dialect.options(""), changes -> {
                throw new IllegalStateException("not now");
            });
        refusing.start().block();
        try {
            Leases.until(() -> stage.leases().all().size(), count -> count == 2);
            assertEquals(lags(dialect, two, counts.get(0), counts.get(1)), lag(observer(dialect, stage)));
        } finally {
            refusing.stop().block();
        }
    }

    private static Map<String, Integer> lags(Dialect dialect, List<Server.Range> ranges, int... counts) {
        Map<String, Integer> lags = new TreeMap<>();
        for (int n = 0; n < counts.length; n++) {
            lags.put(token(dialect, ranges.get(n)), counts[n]);
        }
        return lags;
    }

    /** Writes this many items to each range; returns the last log sequence number of each. */
    private static List<Integer> write(Stage stage, List<List<String>> keys, int... counts) {
        List<Integer> newest = new ArrayList<>();
        for (int range = 0; range < counts.length; range++) {
            String key = keys.get(range).get(0);
            int last = 0;
            for (int n = 0; n < counts[range]; n++) {
                String session =
                    stage.feed().upsertItem(item("b-" + n, key, n), new PartitionKey(key), null).getSessionToken();
                last = Integer.parseInt(session.substring(session.lastIndexOf('#') + 1));
            }
            newest.add(last);
        }
        return newest;
    }

    /** Which keys lie in which range; finds out with items that are gone afterwards. */
    private static List<List<String>> keysOfRanges(CosmosContainer feed) {
        KEYS.forEach(key -> feed.createItem(item("probe", key, 0), new PartitionKey(key), null));
        List<List<String>> keys = feed.getFeedRanges().stream().map(range -> feed
            .queryItems("SELECT VALUE c.pk FROM c", new CosmosQueryRequestOptions().setFeedRange(range), String.class)
            .stream().toList()).toList();
        KEYS.forEach(key -> feed.deleteItem("probe", new PartitionKey(key), new CosmosItemRequestOptions()));
        return keys;
    }
}
