//! Planted bugs: each breaks one promise of the contract, and the suite must notice.

/// A bug of the model store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A page ends in the middle of a transaction that fits into one page.
    CutsTransactionsThatFit,
    /// The continuation of a page that cuts an oversized transaction skips the rest of it.
    SkipsTheRestOfACutTransaction,
    /// The continuation inside a transaction repeats the last change of its page.
    RepeatsAChangeInsideATransaction,
    /// The second page of a cut transaction has another LSN.
    RenumbersTheRestOfACutTransaction,
    /// The continuation of a full page skips the next change.
    SkipsAChangeAtThePageEdge,
    /// The continuation of a page shows its last transaction again.
    RepeatsAChangeAtThePageEdge,
    /// An empty page returns the continuation it was asked with.
    StandsStillOnEmptyPages,
    /// The page size counts changes outside of the asked range.
    CountsChangesOfOtherKeys,
    /// One change more is said to come than there is.
    MiscountsRemaining,
    /// A sub-range shows its whole physical range.
    IgnoresSubRanges,
    /// The feed comes in the order of keys and ids, also within a partition key.
    OrdersByKey,
    /// Latest-version mode shows deleted items.
    ShowsDeletedItems,
    /// Latest-version mode shows old versions.
    ShowsOldVersions,
    /// A rewritten item keeps its old place in the feed.
    KeepsThePlaceOfRewrittenItems,
    /// All-versions mode shows only the newest version.
    DropsIntermediateVersions,
    /// All-versions mode has no previous images.
    DropsPreviousImages,
    /// Feed bodies have no `_lsn`.
    ForgetsTheLsnInFeedBodies,
    /// Bodies of reads have an `_lsn`.
    ShowsTheLsnInReads,
    /// `if_match` is not looked at.
    IgnoresIfMatch,
    /// `if_match` is not looked at when deleting.
    IgnoresIfMatchOfDeletes,
    /// Writes of one batch to one item share an etag.
    OneEtagPerBatch,
    /// What was done before the failing write of a batch stays.
    KeepsHalfABatch,
    /// Each write of a batch has an LSN of its own.
    OneLsnPerWrite,
    /// A create replaces what is there.
    CreatesOverExistingItems,
    /// Items are found by id alone.
    IgnoresPartitionKeys,
    /// System members sent by a client are kept.
    TrustsSystemMembers,
    /// The key in the request need not be that of the item.
    AcceptsAWrongPartitionKey,
    /// Bodies over 2 MiB are taken.
    AcceptsLargeItems,
    /// A refused write uses up an LSN.
    BurnsAnLsnOnErrors,
    /// A start at now shows everything.
    NowIsTheBeginning,
    /// A start at a time shows only what is newer.
    TimesAreExclusive,
    /// `not_before` is not looked at.
    IgnoresNotBefore,
    /// A continuation of another container is taken.
    AcceptsForeignContinuations,
    /// A continuation beyond the end is taken.
    AcceptsContinuationsBeyondTheEnd,
    /// All-versions mode silently skips what has left retention.
    SkipsWhatLeftRetention,
    /// Versions never leave retention.
    NeverForgetsVersions,
    /// Latest-version mode forgets what has left retention.
    RetentionHitsLatestMode,
    /// Items never expire.
    NeverExpires,
    /// Expired items show as deleted by a caller.
    ExpiryLooksLikeADelete,
    /// A rewritten item expires as if it had not been.
    RewritingDoesNotProlongLife,
    /// The children of a split begin empty.
    ChildrenLoseHistory,
    /// A merged range serves only its left parent's history.
    MergedRangesLoseTheRightHistory,
    /// The children of a split count from the beginning.
    ChildrenCountAnew,
    /// A merged range counts on from its left parent.
    MergedRangesCountFromTheLeft,
    /// A split or merged range goes on answering.
    GoneRangesAnswer,
    /// A feed range over two physical ranges is answered by the first.
    SpanningRangesAnswer,
    /// A range names only its direct parents.
    ForgetsGrandparents,
    /// Ids of split ranges come back.
    ReusesRangeIds,
    /// The two children of a split are returned but the live list keeps the parent.
    StaleRanges,
    /// Waiting readers are not woken.
    NeverWakes,
    /// Waiting readers are not woken by a split.
    DoesNotWakeOnSplits,
    /// `changed` does not see what was written before it was called.
    MissesNewsBeforeTheWait,
    /// A container that is created again has the resource id of the old one.
    KeepsTheRidOfDeletedContainers,
    /// All containers count LSNs together.
    SharesLsnsBetweenContainers,
    /// The last item of a full page of a listing is not shown.
    ListingDropsTheItemAtThePageEdge,
    /// Every item of a listing has the cursor of the last one.
    CursorsAreThoseOfThePage,
    /// A replace keeps members of the old body.
    MergesBodies,
    /// Every version of an item has a resource id of its own.
    NewResourceIdAtEveryWrite,
    /// Members of the user that begin with `_` are discarded.
    TakesAllUnderscoreMembersForItsOwn,
    /// An upsert with an etag refuses a missing item.
    EtagMustMatchSomething,
    /// Databases and containers are listed in the order of their creation.
    ListsByAge,
    /// Members of a container that the store does not know are lost.
    DropsUnknownSettings,
    /// The partition key of a container can be replaced.
    PartitionKeysMayChange,
    /// A range id that never existed answers like one that was split.
    UnknownRangesAreGone,
    /// A split gives every item a new etag.
    SplitsTouchItems,
    /// A `ttl` counts in a container without time to live.
    ExpiresWithoutBeingAsked,
    /// Whether items live for a limited time is not told.
    TellsNoTimeToLive,
    /// An LSN is given out before its write is visible, so that readers can overtake it.
    PublishesLsnsEarly,
    /// The store has another identity after it was reopened.
    ChangesItsIdWhenReopened,
    /// All stores have the same identity.
    SharesItsIdWithOtherStores,
    /// Each container shows a store id of its own.
    HasAnIdForEachContainer,
    /// Opening a container again by its name gives the deleted one.
    ReopensTheDeletedContainer,
    /// Containers of one store declare different capabilities.
    DeclaresCapabilitiesByContainer,
    /// Responses carry no request charge.
    OmitsTheRequestCharge,
    /// Pages of the feed carry no request charge.
    OmitsTheRequestChargeOfPages,
    /// Errors carry no request charge.
    OmitsTheRequestChargeOfErrors,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 76] = [
        Self::CutsTransactionsThatFit,
        Self::SkipsTheRestOfACutTransaction,
        Self::RepeatsAChangeInsideATransaction,
        Self::RenumbersTheRestOfACutTransaction,
        Self::SkipsAChangeAtThePageEdge,
        Self::RepeatsAChangeAtThePageEdge,
        Self::StandsStillOnEmptyPages,
        Self::CountsChangesOfOtherKeys,
        Self::MiscountsRemaining,
        Self::IgnoresSubRanges,
        Self::OrdersByKey,
        Self::ShowsDeletedItems,
        Self::ShowsOldVersions,
        Self::KeepsThePlaceOfRewrittenItems,
        Self::DropsIntermediateVersions,
        Self::DropsPreviousImages,
        Self::ForgetsTheLsnInFeedBodies,
        Self::ShowsTheLsnInReads,
        Self::IgnoresIfMatch,
        Self::IgnoresIfMatchOfDeletes,
        Self::OneEtagPerBatch,
        Self::KeepsHalfABatch,
        Self::OneLsnPerWrite,
        Self::CreatesOverExistingItems,
        Self::IgnoresPartitionKeys,
        Self::TrustsSystemMembers,
        Self::AcceptsAWrongPartitionKey,
        Self::AcceptsLargeItems,
        Self::BurnsAnLsnOnErrors,
        Self::NowIsTheBeginning,
        Self::TimesAreExclusive,
        Self::IgnoresNotBefore,
        Self::AcceptsForeignContinuations,
        Self::AcceptsContinuationsBeyondTheEnd,
        Self::SkipsWhatLeftRetention,
        Self::NeverForgetsVersions,
        Self::RetentionHitsLatestMode,
        Self::NeverExpires,
        Self::ExpiryLooksLikeADelete,
        Self::RewritingDoesNotProlongLife,
        Self::ChildrenLoseHistory,
        Self::MergedRangesLoseTheRightHistory,
        Self::ChildrenCountAnew,
        Self::MergedRangesCountFromTheLeft,
        Self::GoneRangesAnswer,
        Self::SpanningRangesAnswer,
        Self::ForgetsGrandparents,
        Self::ReusesRangeIds,
        Self::StaleRanges,
        Self::NeverWakes,
        Self::DoesNotWakeOnSplits,
        Self::MissesNewsBeforeTheWait,
        Self::KeepsTheRidOfDeletedContainers,
        Self::SharesLsnsBetweenContainers,
        Self::ListingDropsTheItemAtThePageEdge,
        Self::CursorsAreThoseOfThePage,
        Self::MergesBodies,
        Self::NewResourceIdAtEveryWrite,
        Self::TakesAllUnderscoreMembersForItsOwn,
        Self::EtagMustMatchSomething,
        Self::ListsByAge,
        Self::DropsUnknownSettings,
        Self::PartitionKeysMayChange,
        Self::UnknownRangesAreGone,
        Self::SplitsTouchItems,
        Self::ExpiresWithoutBeingAsked,
        Self::TellsNoTimeToLive,
        Self::PublishesLsnsEarly,
        Self::ChangesItsIdWhenReopened,
        Self::SharesItsIdWithOtherStores,
        Self::HasAnIdForEachContainer,
        Self::ReopensTheDeletedContainer,
        Self::DeclaresCapabilitiesByContainer,
        Self::OmitsTheRequestCharge,
        Self::OmitsTheRequestChargeOfPages,
        Self::OmitsTheRequestChargeOfErrors,
    ];
}
