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

    /**
     * The server numbers the changes of a container, not of a range, and processors with leases by hashes subtract two
     * such numbers: theirs counts what was written to other ranges too. It is never less than what waits.
     */
    @ParameterizedTest
    @EnumSource
    void the_lag_of_two_ranges_is_told_apart(Dialect dialect) {
        Stage stage = stage("two", dialect);
        List<String> tokens =
            Server.SHARED.ranges(path(stage.feed())).stream().map(range -> token(dialect, range)).toList();
        List<List<String>> keys = keysOfRanges(stage.feed());
        ChangeFeedProcessor observer = observer(dialect, stage);
        try (Running running = start(dialect, stage, 2)) {
            running.assertHandled(write(stage.feed(), "a", 0, 20));
            // Idle ranges follow what happens in the others.
            Leases.until(() -> lag(observer), Map.of(tokens.get(0), 0, tokens.get(1), 0)::equals);
        }
        // Five changes in the first range, then three in the second.
        for (int n = 0; n < 8; n++) {
            String key = keys.get(n < 5 ? 0 : 1).get(0);
            stage.feed().upsertItem(item("b-" + n, key, n), new PartitionKey(key), null);
        }
        boolean exact = dialect == Dialect.CHANGES;
        Map<String, Integer> expected = Map.of(tokens.get(0), exact ? 5 : 8, tokens.get(1), exact ? 3 : 8);
        assertEquals(expected, lag(observer));
        try (Running running = start(dialect, stage, 2)) {
            Leases.until(running::seen, seen -> seen.size() >= 8);
            assertEquals(8, running.seen().size());
            Leases.until(() -> lag(observer), Map.of(tokens.get(0), 0, tokens.get(1), 0)::equals);
        }
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
