// Compares the memory that ledgers count with the system's figures and with a count of pages.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/setup/from_config.h"
#include "planner/plan/planned_pipeline.h"
#include "support/covering.h"
#include "support/temp_dir.h"
#include "support/training_run.h"

namespace trident::testing {
namespace {

// A line of /proc/self/status in bytes: "VmRSS:" is the current size, "VmHWM:" the peak.
std::int64_t status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == key && file >> kib) return kib * 1024;
  }
  return 0;
}

// Resets VmHWM; returns false if the system doesn't allow it.
bool forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

struct Case {
  const char* name;
  Layout layout;
  Overrides overrides;
};

// 83 million parameters; four sequences for each data-parallel rank.
Config large_config(const std::string& directory, const Case& c) {
  const std::string length = tests_are_full() ? "128" : "32";
  return seeded_config(
      "gpt2", directory,
      Overrides{"model.hidden_size=1024", "model.num_attention_heads=8", "model.num_query_groups=8",
                "model.ffn_hidden_size=4096", "model.vocab_size=32000",
                "model.max_position_embeddings=" + length, "data.sequence_length=" + length,
                "batch.micro_batch_size=2", "batch.gradient_accumulation_steps=2",
                "runtime.threads_per_rank=1",
                "batch.global_batch_size=" + std::to_string(4 * c.layout.data)} +
          overrides_of(c.layout) + c.overrides);
}

TEST(Resident, PeakIsWithin10PercentOfTheLedgersSum) {
  const std::vector<Case> cases{
      {"one rank", {1, 1, 1}, {}},
      {"bf16, stage 3", {2, 1, 1}, {"precision.dtype=bf16", "zero_optimization.stage=3"}},
      {"stage 2, tensor, full recomputation",
       {2, 2, 1},
       {"zero_optimization.stage=2", "activation_checkpointing.granularity=full"}},
      {"pipeline, Adafactor",
       {1, 1, 2},
       {"optimizer.type=Adafactor", "optimizer.params.betas=null", "optimizer.params.eps=null",
        "precision.dtype=bf16", "batch.micro_batch_size=1", "pipeline.schedule=zb_h1",
        "batch.gradient_accumulation_steps=null"}}};
  for (const Case& c : cases) {
    // Quick tests run only cases with several ranks, in which some ranks wait.
    if (!tests_are_full() && c.layout.ranks() == 1) continue;
    SCOPED_TRACE(c.name);
    const TempDir dir;
    const Config config = large_config(dir.path(), c);
    const bool resets = forget_peak();
    const std::int64_t start = status("VmRSS:");
    std::int64_t ledgers = 0, reserved = 0, resident = 0;
    std::mutex mutex;
    std::barrier together(c.layout.ranks());
    on_ranks(config, transport_options(config), [&](Rank& own) {
      for (int k = 0; k < 2; ++k) own.stepper.train(synthetic_batches(own.model, k), 1e-3);
      together.arrive_and_wait();
      const std::lock_guard lock(mutex);
      ledgers += own.model.context().ledger().figures().peak_total;
      reserved += own.model.context().allocator().figures().reserved_bytes;
      // The allocator keeps nearly all of its peak, so the current size is little less than the
      // peak.
      resident = std::max(resident, status(resets ? "VmHWM:" : "VmRSS:") - start);
    });
    const auto sum = static_cast<double>(ledgers);
    EXPECT_GT(ledgers, std::int64_t{1} << 30);
    EXPECT_NEAR(static_cast<double>(resident) / sum, 1, 0.1);
    EXPECT_NEAR(static_cast<double>(reserved) / sum, 1, 0.05);
  }
}

// Counts the resident pages of its memory. It uses small pages, so that the count is exact.
class PageCountingDevice final : public Device {
 public:
  explicit PageCountingDevice(Device& cpu) : cpu_(cpu) {}
  ~PageCountingDevice() override {
    for (const Segment& segment : segments_) munmap(segment.address, segment.bytes);
  }
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string_view name() const override { return "page counting"; }
  void* allocate(std::size_t) override { throw Error("only segments are taken"); }
  void deallocate(void*, std::size_t) override {}  // kept for the count
  Segment allocate_segment(std::size_t at_least) override {
    const Segment segment{nullptr, std::max(at_least, std::size_t{1} << 32)};
    void* const address = mmap(nullptr, segment.bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) throw Error("mmap failed");
    madvise(address, segment.bytes, MADV_NOHUGEPAGE);
    segments_.push_back({address, segment.bytes});
    return segments_.back();
  }
  bool release(void* address, std::size_t bytes) override {
    return madvise(address, bytes, MADV_DONTNEED) == 0;
  }
  std::unique_ptr<Stream> make_stream() override { return cpu_.make_stream(); }

  std::int64_t touched_bytes() const {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::int64_t bytes = 0;
    for (const Segment& segment : segments_) {
      std::vector<unsigned char> there(segment.bytes / page);
      if (mincore(segment.address, segment.bytes, there.data()) != 0) throw Error("mincore");
      bytes += std::count_if(there.begin(), there.end(), [](unsigned char c) { return c & 1; }) *
               static_cast<std::int64_t>(page);
    }
    return bytes;
  }

 private:
  Device& cpu_;
  std::vector<Segment> segments_;
};

TEST(Resident, PagesTouchedAgreeWithTheLedger) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::string granularity : {"none", "full"}) {
      const bool chosen =
          (stage == 0 && granularity == "none") || (stage == 3 && granularity == "full");
      if (!tests_are_full() && !chosen) continue;
      SCOPED_TRACE(std::to_string(stage) + " " + granularity);
      const TempDir dir;
      const Config config = seeded_config(
          "llama", dir.path(),
          overrides_of({2, 1, 1}) +
              Overrides{"model.hidden_size=768", "model.ffn_hidden_size=2048",
                        "model.vocab_size=8000", "batch.global_batch_size=16",
                        "batch.micro_batch_size=4", "runtime.threads_per_rank=1",
                        "zero_optimization.stage=" + std::to_string(stage),
                        std::string("activation_checkpointing.granularity=") + granularity});
      const auto cpu = make_cpu_device();
      const auto architecture = built_in_architectures().at("llama");
      const Schedule schedule = schedule_of(config);
      run_local(2, transport_options(config), [&](Transport& transport) {
        PageCountingDevice device(*cpu);
        Context context(device, 1);
        Rank own(context, config, *architecture, schedule,
                 topology_of(config.parallel, schedule, transport));
        for (int k = 0; k < 2; ++k) own.stepper.train(synthetic_batches(own.model, k), 1e-3);
        const auto touched = static_cast<double>(device.touched_bytes());
        const auto reserved = static_cast<double>(context.allocator().figures().reserved_bytes);
        const auto ledger = static_cast<double>(context.ledger().figures().peak_total);
        EXPECT_GT(ledger, 200e6);
        EXPECT_GT(touched / ledger, 0.95);  // the rest is padding and memory that no kernel writes
        EXPECT_LT(touched / ledger, 1.1);
        EXPECT_GT(reserved / touched, 0.99);
        EXPECT_LT(reserved / touched, 1.1);
      });
    }
  }
}

}  // namespace
}  // namespace trident::testing
