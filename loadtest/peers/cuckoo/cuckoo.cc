// A libcuckoo table under the same work as ours: KEYS rows of 64 bytes, read at random
// by THREADS threads, the rows copied out. Each line "find N" on standard input is
// answered with the seconds that N finds took.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <libcuckoo/cuckoohash_map.hh>

namespace {

struct Row {
  float v[16];
};

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

struct Hash {
  size_t operator()(int64_t k) const { return mix(static_cast<uint64_t>(k)); }
};

using Map = libcuckoo::cuckoohash_map<int64_t, Row, Hash>;

template <typename F>
void each(int threads, F f) {
  std::vector<std::thread> all;
  for (int t = 0; t < threads; t++) all.emplace_back(f, t);
  for (auto& t : all) t.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: cuckoo KEYS THREADS\n");
    return 2;
  }
  const uint64_t keys = std::strtoull(argv[1], nullptr, 10);
  const int threads = std::atoi(argv[2]);
  if (keys == 0 || threads < 1) return 2;
  Map map(keys);
  each(threads, [&](int t) {
    for (uint64_t i = t; i < keys; i += threads) {
      Row r{};
      r.v[0] = static_cast<float>(i);
      map.insert(static_cast<int64_t>(mix(i)), r);
    }
  });
  std::printf("ready\n");
  std::fflush(stdout);
  char what[16];
  unsigned long long n;
  uint64_t round = 1;
  while (std::scanf("%15s %llu", what, &n) == 2) {
    if (std::strcmp(what, "find") != 0) return 2;
    std::vector<uint64_t> missed(threads * 8);
    const auto began = std::chrono::steady_clock::now();
    each(threads, [&](int t) {
      std::vector<Row> out(1024);
      uint64_t x = mix(round * 1000 + t);
      for (unsigned long long i = t; i < n; i += threads) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        const auto key = static_cast<int64_t>(mix((x >> 20) % keys));
        if (!map.find(key, out[i / threads % out.size()])) missed[t * 8]++;
      }
      volatile float keep = out[0].v[0];
      (void)keep;
    });
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    for (auto m : missed) {
      if (m != 0) {
        std::fprintf(stderr, "keys were not found\n");
        return 1;
      }
    }
    round++;
    std::printf("%.9f\n", took);
    std::fflush(stdout);
  }
  return 0;
}
