package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.ThroughputProperties;
import java.util.List;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;

/** The SDK's own first steps, as its samples show them, with what they must bring. */
class GettingStartedTest extends Suite {
    /** A plain object of a user's program. */
    static final class Boat {
        public String id;
        public String harbour;
        public boolean sails;

        static Boat of(String id, String harbour, boolean sails) {
            Boat boat = new Boat();
            boat.id = id;
            boat.harbour = harbour;
            boat.sails = sails;
            return boat;
        }
    }

    private static final List<Boat> BOATS = List.of(
        Boat.of("Anna", "Kiel", true), Boat.of("Berta", "Bremen", false), Boat.of("Clara", "Emden", true),
        Boat.of("Dora", "Kiel", false));

    private static final String IN_TWO_HARBOURS = "SELECT * FROM Boat WHERE Boat.harbour IN ('Kiel', 'Emden')";

    private CosmosContainer boats(String id) {
        assertEquals(200, CLIENT.createDatabaseIfNotExists(database.getId()).getStatusCode());
        CosmosContainerProperties properties = new CosmosContainerProperties(id, "/harbour");
        ThroughputProperties throughput = ThroughputProperties.createManualThroughput(400);
        assertEquals(201, database.createContainerIfNotExists(properties, throughput).getStatusCode());
        assertEquals(200, database.createContainerIfNotExists(properties, throughput).getStatusCode());
        return database.getContainer(id);
    }

    @Test
    void plain_objects_are_created_read_and_queried_page_by_page() {
        CosmosContainer container = boats("sync");
        for (Boat boat : BOATS) {
            CosmosItemResponse<Boat> created =
                container.createItem(boat, new PartitionKey(boat.harbour), new CosmosItemRequestOptions());
            assertEquals(201, created.getStatusCode());
            assertTrue(created.getRequestCharge() > 0);
        }
        for (Boat boat : BOATS) {
            Boat read = container.readItem(boat.id, new PartitionKey(boat.harbour), Boat.class).getItem();
            assertEquals(boat.sails, read.sails);
        }
        CosmosQueryRequestOptions options = new CosmosQueryRequestOptions();
        options.setQueryMetricsEnabled(true);
        TreeSet<String> found = new TreeSet<>();
        container.queryItems(IN_TWO_HARBOURS, options, Boat.class).iterableByPage(10)
            .forEach(page -> page.getResults().forEach(boat -> found.add(boat.id)));
        assertEquals(new TreeSet<>(List.of("Anna", "Clara", "Dora")), found);
    }

    @Test
    void a_database_has_a_throughput_that_its_containers_share() {
        CLIENT.createDatabase("java-shared", ThroughputProperties.createAutoscaledThroughput(5000));
        CosmosDatabase shared = CLIENT.getDatabase("java-shared");
        try {
            assertEquals(5000, shared.readThroughput().getProperties().getAutoscaleMaxThroughput());
            shared.replaceThroughput(ThroughputProperties.createManualThroughput(700));
            assertEquals(700, shared.readThroughput().getProperties().getManualThroughput());
            shared.createContainer("sharing", "/pk");
            assertStatus(400, () -> shared.getContainer("sharing").readThroughput());
        } finally {
            shared.delete();
        }
    }

    @Test
    void the_same_steps_as_streams() {
        CosmosAsyncContainer container = async(boats("async"));
        List<Integer> statuses = Flux.fromIterable(BOATS).flatMap(container::createItem)
            .map(CosmosItemResponse::getStatusCode).collectList().block();
        assertEquals(List.of(201, 201, 201, 201), statuses);
        List<String> read = Flux.fromIterable(BOATS)
            .concatMap(boat -> container.readItem(boat.id, new PartitionKey(boat.harbour), Boat.class))
            .map(response -> response.getItem().id).collectList().block();
        assertEquals(List.of("Anna", "Berta", "Clara", "Dora"), read);
        List<String> found = container.queryItems(IN_TWO_HARBOURS, new CosmosQueryRequestOptions(), Boat.class).byPage(1)
            .flatMap(page -> Flux.fromIterable(page.getResults())).map(boat -> boat.id).sort().collectList().block();
        assertEquals(List.of("Anna", "Clara", "Dora"), found);
        container.deleteItem("Anna", new PartitionKey("Kiel")).block();
        assertStatus(404, () -> container.readItem("Anna", new PartitionKey("Kiel"), Boat.class).block());
    }
}
