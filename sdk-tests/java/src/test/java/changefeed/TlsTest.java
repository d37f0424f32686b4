package changefeed;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The same over TLS with a certificate that the server signs itself. */
class TlsTest {
    @Test
    void items_queries_and_the_feed_work_over_tls() throws Exception {
        try (Server server = Server.start("--tls", "self-signed", "--ranges", "2");
            CosmosClient client = server.client().buildClient()) {
            assertTrue(server.endpoint.startsWith("https://"), server.endpoint);
            client.createDatabase("db");
            client.getDatabase("db").createContainer("c", "/pk");
            CosmosContainer container = client.getDatabase("db").getContainer("c");
            List<Suite.Seen> written = Suite.write(container, "tls", 0, 20);
            PartitionKey key = new PartitionKey("key-3");
            assertEquals(3, container.readItem("tls-3", key, ObjectNode.class).getItem().get("value").asInt());
            CosmosQueryRequestOptions options = new CosmosQueryRequestOptions();
            var counts = container.queryItems("SELECT VALUE COUNT(1) FROM c", options, Integer.class).stream().toList();
            assertEquals(List.of(20), counts);
            Suite.assertArrived(written, Feed.drain(container, Feed.beginning()).seen());
        }
    }
}
