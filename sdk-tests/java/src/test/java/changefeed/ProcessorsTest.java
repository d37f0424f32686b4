package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Java's processors one at a time: resuming, failing delegates, merges, migration, refusals. */
class ProcessorsTest extends Suite {
    private static final String PREFIX = "one-";
    private static final Consumer<List<Dialect.Change>> NOTHING = changes -> {};

    /** A feed container and its leases. */
    private record Stage(ProcessorsTest test, Dialect dialect, CosmosContainer feed, Leases leases) {
        Running start(Dialect dialect, ChangeFeedProcessorOptions options, Consumer<List<Dialect.Change>> before) {
            return Running.start(dialect, test.async(feed), test.async(leases.container()), leases, options, 2, before);
        }

        Running start(Dialect dialect) {
            return start(dialect, dialect.options(PREFIX), NOTHING);
        }

        Running start() {
            return start(dialect);
        }
    }

    private Stage stage(String name, Dialect dialect) {
        String id = name + "-" + dialect.feed();
        Leases leases = new Leases(container(new CosmosContainerProperties(id + "-leases", "/id")));
        return new Stage(this, dialect, containerFor(dialect, id), leases);
    }

    private static List<Seen> joined(List<Seen> first, List<Seen> second) {
        return Stream.concat(first.stream(), second.stream()).toList();
    }

    @ParameterizedTest
    @EnumSource
    void a_restart_resumes_and_another_prefix_starts_afresh(Dialect dialect) {
        Stage stage = stage("restart", dialect);
        List<Seen> first = new ArrayList<>();
        if (dialect != Dialect.ALL_VERSIONS) {
            first.addAll(write(stage.feed(), "before", 0, 25));
        }
        try (Running running = stage.start()) {
            first.addAll(write(stage.feed(), "running", 0, 25));
            running.assertHandled(first);
            running.batches.forEach(batch -> assertTrue(batch.size() <= 10, "a batch of " + batch.size()));
        }
        List<Seen> stopped = write(stage.feed(), "stopped", 0, 25);
        try (Running running = stage.start()) {
            List<Seen> again = write(stage.feed(), "again", 0, 25);
            running.assertHandled(joined(stopped, again));
            stopped = joined(stopped, again);
        }
        Leases others = new Leases(container(new CosmosContainerProperties(stage.feed().getId() + "-others", "/id")));
        Stage afresh = new Stage(this, dialect, stage.feed(), others);
        try (Running running = afresh.start()) {
            List<Seen> last = write(stage.feed(), "afresh", 0, 5);
            running.assertHandled(dialect == Dialect.ALL_VERSIONS ? last : joined(joined(first, stopped), last));
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_batch_that_failed_is_handled_again(Dialect dialect) {
        Stage stage = stage("failing", dialect);
        AtomicInteger failures = new AtomicInteger();
        Consumer<List<Dialect.Change>> failTwice = changes -> {
            if (changes.stream().anyMatch(change -> change.id().equals("f-17")) && failures.incrementAndGet() <= 2) {
                throw new IllegalStateException("this batch fails twice");
            }
        };
        try (Running running = stage.start(dialect, dialect.options(PREFIX), failTwice)) {
            running.assertHandled(write(stage.feed(), "f", 0, 40));
            assertEquals(3, failures.get());
        }
    }

    @ParameterizedTest
    @EnumSource
    void throttling_delays_and_loses_nothing(Dialect dialect) throws Exception {
        Stage stage = stage("throttled", dialect);
        try (Running running = stage.start()) {
            List<Seen> written = write(stage.feed(), "t", 0, 20);
            Server.SHARED.throttle(path(stage.feed()), 3);
            Thread.sleep(1000);
            int handled = running.seen().size();
            Thread.sleep(1000);
            assertEquals(handled, running.seen().size(), "nothing can arrive while every read is throttled");
            running.assertHandled(joined(written, write(stage.feed(), "t", 20, 40)));
        }
    }

    /** Leases by range id do not survive merges, by the SDK's own account; leases by hashes do. */
    @ParameterizedTest
    @EnumSource(names = {"LATEST_VERSIONS", "ALL_VERSIONS"})
    void leases_by_hashes_go_on_through_a_merge(Dialect dialect) {
        Stage stage = stage("merge", dialect);
        try (Running running = stage.start()) {
            List<Seen> written = new ArrayList<>(write(stage.feed(), "m", 0, 40));
            List<Server.Range> ranges = Server.SHARED.ranges(path(stage.feed()));
            Server.SHARED.merge(path(stage.feed()), ranges.get(0), ranges.get(1));
            written.addAll(write(stage.feed(), "m", 40, 80));
            Leases.until(running::seen, seen -> seen.containsAll(written));
            // The merge may strike between a batch and its checkpoint.
            assertArrived(written, running.seen().stream().distinct().toList());
            assertEquals(2, stage.leases().all().size(), "each lease keeps its part of the merged range");
        }
    }

    @Test
    void all_versions_bring_every_operation() {
        Stage stage = stage("operations", Dialect.ALL_VERSIONS);
        try (Running running = stage.start()) {
            List<String> expected = AllVersionsTest.live(stage.feed(), "item", "key-9");
            Leases.until(running::changes, changes -> changes.size() >= expected.size());
            assertEquals(expected, running.changes().stream()
                .map(change -> change.operation() + " " + change.id() + " " + change.value()).toList());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"CHANGES", "LATEST_VERSIONS"})
    void a_start_time_leaves_out_what_is_older(Dialect dialect) throws Exception {
        Stage stage = stage("time", dialect);
        write(stage.feed(), "older", 0, 20);
        // The time travels in whole seconds.
        Thread.sleep(2100);
        ChangeFeedProcessorOptions options =
            dialect.options(PREFIX).setStartFromBeginning(false).setStartTime(Instant.now());
        Thread.sleep(1100);
        List<Seen> newer = write(stage.feed(), "newer", 0, 20);
        try (Running running = stage.start(dialect, options, NOTHING)) {
            running.assertHandled(joined(newer, write(stage.feed(), "newest", 0, 20)));
        }
    }

    @ParameterizedTest
    @EnumSource
    void pages_follow_each_other_without_the_poll_delay(Dialect dialect) {
        Stage stage = stage("delay", dialect);
        stage.start().close();
        List<Seen> written = write(stage.feed(), "p", 0, 10);
        ChangeFeedProcessorOptions patient =
            dialect.options(PREFIX).setMaxItemCount(1).setFeedPollDelay(Duration.ofMinutes(1));
        try (Running running = stage.start(dialect, patient, NOTHING)) {
            running.assertHandled(written);
            assertEquals(10, running.batches.size());
        }
    }

    @Test
    void leases_by_range_id_become_leases_by_hashes() {
        Stage stage = stage("migration", Dialect.CHANGES);
        try (Running running = stage.start()) {
            running.assertHandled(write(stage.feed(), "old", 0, 30));
        }
        List<Seen> between = write(stage.feed(), "between", 0, 10);
        try (Running migrated = stage.start(Dialect.LATEST_VERSIONS)) {
            migrated.assertHandled(joined(between, write(stage.feed(), "new", 0, 10)));
        }
        for (JsonNode lease : stage.leases().all()) {
            assertEquals(1, lease.get("version").asInt(), () -> lease.toString());
            assertEquals(
                lease.get("LeaseToken").asText(),
                lease.at("/feedRange/Range/min").asText() + "-" + lease.at("/feedRange/Range/max").asText());
        }
        assertEquals(4, stage.leases().ids().size(), () -> "two leases and two markers: " + stage.leases().ids());
        // There is no way back.
        assertThrows(IllegalStateException.class, () -> stage.start(Dialect.CHANGES));
    }

    @Test
    void modes_do_not_share_leases() {
        Stage stage = stage("modes", Dialect.ALL_VERSIONS);
        try (Running running = stage.start()) {
            running.assertHandled(write(stage.feed(), "a", 0, 10));
        }
        assertThrows(IllegalStateException.class, () -> stage.start(Dialect.LATEST_VERSIONS));
        try (Running running = stage.start()) {
            running.assertHandled(write(stage.feed(), "b", 0, 10));
        }
        // Last, because it leaves leases of its own behind before it notices.
        assertThrows(IllegalStateException.class, () -> stage.start(Dialect.CHANGES));
    }
}
