// Package suite names all benchmarks.
package suite

import (
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/loadtest/bench/journal"
	"github.com/monolith-go/monolith/loadtest/bench/kernels"
	"github.com/monolith-go/monolith/loadtest/bench/product"
	"github.com/monolith-go/monolith/loadtest/bench/serving"
	"github.com/monolith-go/monolith/loadtest/bench/syncbytes"
	"github.com/monolith-go/monolith/loadtest/bench/zookeeper"
)

// All are all there are, that of training as o says, each beside the servers that it measures.
func All(o product.TrainOptions) []bench.Benchmark {
	return []bench.Benchmark{
		journal.Append(journal.AppendCases),
		journal.AppendReplicated(journal.ReplicatedCases),
		journal.Replay(journal.ReplayCases),
		journal.Rebuild(journal.RebuildCases),
		product.Predict(product.StartCluster, product.PredictCases, product.OpenCases),
		product.EndToEnd(product.StartCluster, product.EndToEndCases),
		product.Train(o),
		product.Parse(),
		product.PSRPC(product.RunShard),
		product.FanOut(product.StartCluster, product.FanOutCases),
		product.REST(product.StartCluster, product.RESTCases),
		product.Overload(product.StartCluster, product.OverloadCases),
		product.Hedge(),
		product.TLS(product.TLSCases),
		journal.Churn(journal.ChurnCases),
		serving.Versions(serving.VersionsCases),
		serving.UpdateRipple(serving.UpdateCases, product.Ripple(product.StartCluster, product.RippleCases)),
		serving.SwapRipple(serving.SwapCases),
		syncbytes.Bytes(syncbytes.BytesCases, syncbytes.AUCCases),
		zookeeper.Create(zookeeper.Start, zookeeper.WriteCases),
		zookeeper.Set(zookeeper.Start, zookeeper.WriteCases),
		zookeeper.Get(zookeeper.Start, zookeeper.GetCases),
		zookeeper.Watch(zookeeper.Start, zookeeper.WatchCases),
		zookeeper.Memory(zookeeper.Start, zookeeper.MemoryCases),
		kernels.TableLookup(),
		kernels.TableApply(),
		kernels.Gemm(),
		kernels.DeepFMTrain(),
		kernels.DeepFMScore(),
	}
}
