package bench

// All are all there are, each beside the servers that it measures.
func All() []Benchmark {
	return []Benchmark{
		Append(AppendCases),
		Replay(ReplayCases),
		Rebuild(RebuildCases),
		Predict(startCluster, PredictCases),
		EndToEnd(startCluster, EndToEndCases),
		PSRPC(startShard),
		ZKCreate(startZK, ZKWriteCases),
		ZKSet(startZK, ZKWriteCases),
		ZKGet(startZK, ZKGetCases),
		ZKWatch(startZK, ZKWatchCases),
		ZKMemory(startZK, ZKMemoryCases),
		TableLookup(),
		TableApply(),
		Gemm(),
		DeepFMTrain(),
		DeepFMScore(),
	}
}
