package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.TreeMap;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;

/** A database of its own for each class of tests, and what they have in common. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class Suite {
    /** Two clients for all classes: each opens connections and reads the account. */
    static final CosmosClient CLIENT = Server.SHARED.client().buildClient();

    static final CosmosAsyncClient ASYNC = Server.SHARED.client().buildAsyncClient();

    CosmosDatabase database;

    @BeforeAll
    void createDatabase() {
        String id = "java-" + getClass().getSimpleName() + "-" + UUID.randomUUID();
        CLIENT.createDatabase(id);
        database = CLIENT.getDatabase(id);
    }

    @AfterAll
    void deleteDatabase() {
        database.delete();
    }

    /** A new container with two ranges, partitioned by /pk and the newer of the two hashes. */
    CosmosContainer container(String id) {
        return container(new CosmosContainerProperties(id, byKey(PartitionKeyDefinitionVersion.V2)));
    }

    /** The same with a feed of all versions and deletes. */
    CosmosContainer containerOfAllVersions(String id) {
        ChangeFeedPolicy policy = ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(10));
        PartitionKeyDefinition definition = byKey(PartitionKeyDefinitionVersion.V2);
        return container(new CosmosContainerProperties(id, definition).setChangeFeedPolicy(policy));
    }

    /** The one of the two that a processor reads. */
    CosmosContainer containerFor(Dialect dialect, String id) {
        return dialect == Dialect.ALL_VERSIONS ? containerOfAllVersions(id) : container(id);
    }

    CosmosContainer container(CosmosContainerProperties properties) {
        assertEquals(201, database.createContainer(properties).getStatusCode());
        return database.getContainer(properties.getId());
    }

    static PartitionKeyDefinition byKey(PartitionKeyDefinitionVersion version) {
        return new PartitionKeyDefinition().setPaths(List.of("/pk")).setVersion(version);
    }

    /** The container's name for the command line. */
    String path(CosmosContainer container) {
        return database.getId() + "/" + container.getId();
    }

    CosmosAsyncContainer async(CosmosContainer container) {
        return ASYNC.getDatabase(database.getId()).getContainer(container.getId());
    }

    /** A feed that asks for a page when one was taken, as far as the SDK lets it. */
    Iterator<FeedResponse<JsonNode>> pages(CosmosContainer container, CosmosChangeFeedRequestOptions options) {
        return async(container).queryChangeFeed(options, JsonNode.class).byPage().toIterable(1).iterator();
    }

    /** Keys that lie in both ranges of a new container, and in both halves of each. */
    static final List<String> KEYS = IntStream.range(0, 16).mapToObj(n -> "key-" + n).toList();

    static ObjectNode item(String id, String key, int value) {
        return Server.JSON.createObjectNode().put("id", id).put("pk", key).put("value", value);
    }

    /** Writes items {@code prefix-from} to {@code prefix-(to - 1)}, their keys in turn; answers with them. */
    static List<Seen> write(CosmosContainer container, String prefix, int from, int to) {
        return IntStream.range(from, to).mapToObj(n -> {
            Seen item = new Seen(prefix + "-" + n, KEYS.get(n % KEYS.size()), n);
            container.upsertItem(item(item.id(), item.key(), n), new PartitionKey(item.key()), null);
            return item;
        }).toList();
    }

    /** What a feed told of an item. */
    record Seen(String id, String key, int value) {
        static Seen of(JsonNode item) {
            return new Seen(item.get("id").asText(), item.get("pk").asText(), item.get("value").asInt());
        }
    }

    /** Compares what arrived with what was written: every item once, and in order within each key. */
    static void assertArrived(List<Seen> written, List<Seen> arrived) {
        assertEquals(grouped(written), grouped(arrived));
    }

    private static TreeMap<String, List<Seen>> grouped(List<Seen> items) {
        return items.stream().collect(Collectors.groupingBy(Seen::key, TreeMap::new, Collectors.toList()));
    }

    static CosmosException assertStatus(int status, Executable request) {
        CosmosException error = assertThrows(CosmosException.class, request);
        assertEquals(status, error.getStatusCode(), error::getMessage);
        return error;
    }
}
