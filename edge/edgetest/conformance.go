package edgetest

import (
	"testing"
)

// Conformance runs the tests that every store must pass.
func Conformance(t *testing.T, b Bench) {
	for name, test := range map[string]func(*testing.T, *rig){
		"AcceptIsIdempotent":              acceptIsIdempotent,
		"AcceptJudgesEachEventAlone":      acceptJudgesEachEventAlone,
		"AcceptOnceReplays":               acceptOnceReplays,
		"AcceptKeepsTheTrace":             acceptKeepsTheTrace,
		"TwoRoutesToOneTarget":            twoRoutesToOneTarget,
		"RouteErrorIsRerouted":            routeErrorIsRerouted,
		"RouteErrorIsNeverClaimed":        routeErrorIsNeverClaimed,
		"RerouteToATargetThatHasIt":       rerouteToATargetThatHasIt,
		"LineHoldsThroughRetries":         lineHoldsThroughRetries,
		"RetryIsDueAtItsTime":             retryIsDueAtItsTime,
		"BlockedHeadStallsAndIsSkipped":   blockedHeadStallsAndIsSkipped,
		"HeldHeadStallsAndIsSkipped":      heldHeadStallsAndIsSkipped,
		"HaltAndResume":                   haltAndResume,
		"HaltAndRedrive":                  haltAndRedrive,
		"OnlySettleAndSpentBudgetsHalt":   onlySettleAndSpentBudgetsHalt,
		"ResolveRetryTakesThePlace":       resolveRetryTakesThePlace,
		"UnorderedTargetsUseTheirSlots":   unorderedTargetsUseTheirSlots,
		"ChangedOrderWaitsForOldRows":     changedOrderWaitsForOldRows,
		"PlaceOutlivesChangedOrder":       placeOutlivesChangedOrder,
		"RetriesGetAQuarterAndAtMostHalf": retriesGetAQuarterAndAtMostHalf,
		"OneSlotAlternates":               oneSlotAlternates,
		"LimitsHold":                      limitsHold,
		"RateLimitHoldsClaims":            rateLimitHoldsClaims,
		"RateLimitHoldsWhatIsAccepted":    rateLimitHoldsWhatIsAccepted,
		"RateLimitSurvivesARestart":       rateLimitSurvivesARestart,
		"RateLimitAndClockStepBack":       rateLimitAndClockStepBack,
		"LimitOfNoneHoldsAll":             limitOfNoneHoldsAll,
		"EpisodesAreKept":                 episodesAreKept,
		"RotationIsFair":                  rotationIsFair,
		"HandlersTakeTurns":               handlersTakeTurns,
		"GatesAreTestedAtClaimAndStart":   gatesAreTestedAtClaimAndStart,
		"MissingHandlerKeepsItsWork":      missingHandlerKeepsItsWork,
		"SettleClosesTheGate":             settleClosesTheGate,
		"SettleAgainIsAnswered":           settleAgainIsAnswered,
		"LateOutcomeIsKept":               lateOutcomeIsKept,
		"ReleaseOfALostLease":             releaseOfALostLeaseWritesNothing,
		"StaleWorkerChangesNothing":       staleWorkerChangesNothing,
		"FollowUpsAreAllOrNothing":        followUpsAreAllOrNothing,
		"ExecutionsAreBounded":            executionsAreBounded,
		"RedriveMakesOneNewGeneration":    redriveMakesOneNewGeneration,
		"AgainIsInherited":                againIsInherited,
		"AlreadyConsumedDoesNotStart":     alreadyConsumedDoesNotStart,
		"ExpiredWorkIsNotStarted":         expiredWorkIsNotStarted,
		"DoubtedClockExpiresNothing":      doubtedClockExpiresNothing,
		"GiveUpByTime":                    giveUpByTime,
		"PruneKeepsWhatIsNeeded":          pruneKeepsWhatIsNeeded,
		"PruneByBytes":                    pruneByBytes,
		"ClockStepBack":                   clockStepBack,
		"DeadOwnerIsVoided":               deadOwnerIsVoided,
		"LossesHaveTheirBudget":           lossesHaveTheirBudget,
		"AcquireTakesTheTarget":           acquireTakesTheTarget,
		"WatchSeesCommitsInOrder":         watchSeesCommitsInOrder,
		"DispatchDelivers":                dispatchDelivers,
		"PagesAreKeyset":                  pagesAreKeyset,
		"ClaimsKeepTheirDeclaration":      claimsKeepTheirDeclaration,
		"HandlersComeAndGo":               handlersComeAndGo,
		"RegisterWaitsForDeliveries":      registerWaitsForDeliveries,
		"FactsExplain":                    factsExplain,
		"RetryNowMakesItDue":              retryNowMakesItDue,
		"BulkIsGuarded":                   bulkIsGuarded,
		"ListsFilter":                     listsFilter,
		"BacklogNamesTheWorst":            backlogNamesTheWorst,
		"FactsOfChangedOrder":             factsOfChangedOrder,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, b)
			test(t, r)
			r.check()
		})
	}
}
