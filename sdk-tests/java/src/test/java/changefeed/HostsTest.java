package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Two processes share the leases, a range splits under load, one process is killed: everything arrives. */
class HostsTest extends Suite {
    /** What happened to one dialect. */
    private static final class Story {
        CosmosContainer feed;
        Leases leases;
        final List<Seen> written = new ArrayList<>();
        List<JsonNode> shared;
        List<JsonNode> split;
        List<JsonNode> alone;
        int handledByA;
    }

    private final Map<Dialect, Story> stories = new EnumMap<>(Dialect.class);
    private Host a;
    private Host b;

    /** All dialects live through the same story at the same time: starting and losing hosts takes long. */
    @BeforeAll
    void live() throws Exception {
        for (Dialect dialect : Dialect.values()) {
            Story story = new Story();
            story.feed = containerFor(dialect, dialect.feed());
            story.leases = new Leases(container(new CosmosContainerProperties(dialect.leases(), "/id")));
            if (dialect != Dialect.ALL_VERSIONS) {
                story.written.addAll(write(story.feed, "before", 0, 32));
            }
            stories.put(dialect, story);
        }
        a = Host.start("a", database.getId());
        b = Host.start("b", database.getId());
        for (Story story : stories.values()) {
            story.shared = story.leases.untilOwned(2, "a", "b");
        }
        for (Story story : stories.values()) {
            story.written.addAll(write(story.feed, "shared", 0, 50));
            String parent = Server.SHARED.ranges(path(story.feed)).get(0).id();
            CompletableFuture<?> split =
                CompletableFuture.runAsync(() -> Server.SHARED.split(path(story.feed), parent));
            story.written.addAll(write(story.feed, "split", 0, 100));
            split.join();
        }
        for (Story story : stories.values()) {
            story.split = story.leases.untilOwned(3, "a", "b");
        }
        // What the first host has not handled and what comes from now on is for the other one.
        for (Story story : stories.values()) {
            story.written.addAll(write(story.feed, "last", 0, 50));
        }
        a.kill();
        for (Map.Entry<Dialect, Story> entry : stories.entrySet()) {
            entry.getValue().handledByA = arrived(entry.getKey(), a).size();
            entry.getValue().written.addAll(write(entry.getValue().feed, "alone", 0, 50));
        }
        for (Map.Entry<Dialect, Story> entry : stories.entrySet()) {
            Story story = entry.getValue();
            story.alone = story.leases.untilOwned(3, "b");
            Leases.until(() -> arrived(entry.getKey(), a, b).size(), count -> count >= story.written.size());
        }
        b.stop();
        stories.values().forEach(story -> story.leases.untilFree());
    }

    @AfterAll
    void end() {
        Stream.of(a, b).filter(Objects::nonNull).forEach(Host::close);
    }

    @ParameterizedTest
    @EnumSource
    void everything_arrives_and_in_order(Dialect dialect) {
        Story story = stories.get(dialect);
        List<Dialect.Change> arrived = arrived(dialect, a, b);
        assertArrived(story.written, arrived.stream().map(Dialect.Change::seen).toList());
        arrived.forEach(change -> assertEquals(dialect == Dialect.ALL_VERSIONS ? "create" : "", change.operation()));
        assertTrue(story.handledByA > 0 && story.handledByA < story.written.size(), "a handled " + story.handledByA);
        assertEquals(story.handledByA, arrived(dialect, a).size(), "a dead host handles nothing");
        assertFalse(b.batches(dialect).isEmpty());
    }

    @ParameterizedTest
    @EnumSource
    void leases_follow_the_ranges(Dialect dialect) {
        Story story = stories.get(dialect);
        Set<String> expected = new TreeSet<>();
        Server.SHARED.ranges(path(story.feed))
            .forEach(range -> expected.add(dialect == Dialect.CHANGES ? range.id() : range.min() + "-" + range.max()));
        assertEquals(3, expected.size());
        assertEquals(expected, tokens(story.split));
        assertEquals(expected, tokens(story.alone));
        Set<String> kept = tokens(story.shared);
        kept.retainAll(expected);
        assertEquals(1, kept.size(), "the lease of the range that did not split stays");
    }

    private static Set<String> tokens(List<JsonNode> leases) {
        Set<String> tokens = new TreeSet<>();
        leases.forEach(lease -> tokens.add(lease.get("LeaseToken").asText()));
        return tokens;
    }

    /** What arrived, in the order in which it was handled first: who takes over repeats what was not checkpointed. */
    private static List<Dialect.Change> arrived(Dialect dialect, Host... hosts) {
        Set<Dialect.Change> first = new LinkedHashSet<>();
        Stream.of(hosts).flatMap(host -> host.batches(dialect).stream())
            .sorted(Comparator.comparing(Host.Batch::micros))
            .forEach(batch -> first.addAll(batch.changes()));
        return List.copyOf(first);
    }
}
