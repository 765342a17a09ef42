package bench

// All are all there are, that of training as o says, each beside the servers that it measures.
func All(o TrainOptions) []Benchmark {
	return []Benchmark{
		Append(AppendCases),
		Replay(ReplayCases),
		Rebuild(RebuildCases),
		Predict(startCluster, PredictCases),
		EndToEnd(startCluster, EndToEndCases),
		Train(o),
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
