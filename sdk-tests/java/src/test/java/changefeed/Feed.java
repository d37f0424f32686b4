package changefeed;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** The change feed as it is pulled: options and loops. */
final class Feed {
    /** What was read, page by page, and where to go on. */
    record Read(List<List<JsonNode>> pages, String continuation) {
        List<JsonNode> items() {
            return pages.stream().flatMap(List::stream).toList();
        }

        List<Suite.Seen> seen() {
            return items().stream().map(Suite.Seen::of).toList();
        }
    }

    /** Reads until the feed has nothing more. */
    static Read drain(CosmosContainer container, CosmosChangeFeedRequestOptions options) {
        return drain(container.queryChangeFeed(options, JsonNode.class).iterableByPage().iterator());
    }

    static Read drain(Iterator<FeedResponse<JsonNode>> feed) {
        List<List<JsonNode>> pages = new ArrayList<>();
        String continuation = null;
        while (feed.hasNext()) {
            FeedResponse<JsonNode> page = feed.next();
            continuation = page.getContinuationToken();
            if (!page.getResults().isEmpty()) {
                pages.add(page.getResults());
            }
        }
        return new Read(pages, continuation);
    }

    static CosmosChangeFeedRequestOptions beginning() {
        return beginning(FeedRange.forFullRange());
    }

    static CosmosChangeFeedRequestOptions beginning(FeedRange range) {
        return CosmosChangeFeedRequestOptions.createForProcessingFromBeginning(range);
    }

    static CosmosChangeFeedRequestOptions now(FeedRange range) {
        return CosmosChangeFeedRequestOptions.createForProcessingFromNow(range);
    }

    static CosmosChangeFeedRequestOptions after(String continuation) {
        return CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(continuation);
    }

    static CosmosChangeFeedRequestOptions after(Read read) {
        return after(read.continuation());
    }

    private Feed() {}
}
