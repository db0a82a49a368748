#include "parallel/collectives/carried.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/collectives/direct.h"
#include "parallel/collectives/volume.h"

namespace trident::carried {
namespace {

using Transfer = Exchange::Transfer;

// The most members of a host that carry at once, each its part of the tensor, so that several cores
// make the sums of a host. A slot has space for all of them.
constexpr int most_chains = 4;
// The number of buffers for running values: one is summed up, one is sent, and the others may be
// received meanwhile.
constexpr std::size_t places = 4;
// The most results that are being sent to the host before, in place, before their sender waits for
// the oldest.
constexpr std::size_t results_under_way = 8;
// A part is split into at least this many chunks as long as they stay above this many bytes, so
// that hosts work concurrently.
constexpr std::int64_t fewest_chunks = 8, smallest_chunk_bytes = 128 << 10;

// Opens this host's part of the group at the first call, and exchanges slot sizes with the others.
// Returns the smallest.
std::size_t agreed_slot_bytes(Exchange& exchange, HostRuns& runs) {
  if (runs.slot_bytes) return *runs.slot_bytes;
  std::uint64_t own = std::numeric_limits<std::uint64_t>::max();  // alone on its host
  if (runs.size(runs.own) > 1) {
    runs.inside = exchange.open_inside(runs.begin[runs.own], runs.begin[runs.own + 1]);
    own = runs.inside->rendezvous == nullptr ? 0 : runs.inside->rendezvous->slot_bytes();
  }
  std::vector<std::uint64_t> all(static_cast<std::size_t>(exchange.size()), own);
  std::vector<Transfer> transfers;
  for (int i = 1; i < exchange.size(); ++i) {
    const int peer = (exchange.rank() + i) % exchange.size();
    transfers.push_back(exchange.receive(peer, &all[static_cast<std::size_t>(peer)], sizeof own));
    transfers.push_back(exchange.forward(peer, &own, sizeof own));
  }
  exchange.wait(transfers);
  runs.slot_bytes = *std::min_element(all.begin(), all.end());
  return *runs.slot_bytes;
}

// Each chain has a part of the tensor and one member of each host, its carrier. A part is split
// into chunks, the same on all hosts. In round i the members of a host copy their chunk i of each
// part to their slots and rendezvous. The carriers add these to the value from the host before, and
// send the sum on. The last host's carriers send results back instead. The carriers of each host
// show their results `delay_` rounds after the chunk was added there.
class Carrying {
 public:
  Carrying(Exchange& exchange, const HostRuns& runs, const Buffers& buffers, std::size_t slot_bytes)
      : exchange_(exchange),
        d_(exchange.descriptor()),
        data_(buffers.output),
        n_(buffers.n),
        staging_(buffers.staging),
        begin_(runs.begin[runs.own]),
        run_(runs.size(runs.own)),
        self_(exchange.rank() - begin_),
        element_(size_of(d_.dtype)),
        wide_(size_of(accumulator_of(d_.dtype))),
        delay_(2 * static_cast<std::int64_t>(runs.hosts() - 1 - runs.own) + 1) {
    chains_ = most_chains;
    for (std::size_t i = 0; i < runs.hosts(); ++i) chains_ = std::min(chains_, runs.size(i));
    if (runs.own > 0) before_ = runs.begin[runs.own - 1] + self_;
    if (runs.own + 1 < runs.hosts()) after_ = runs.begin[runs.own + 1] + self_;
    set_chunks(slot_bytes);
    if (runs.inside != nullptr) inside_.emplace(exchange.within(*runs.inside));
  }

  void run() {
    for (std::int64_t k = 0; carries() && k + 1 < static_cast<std::int64_t>(places); ++k) expect(k);
    for (std::int64_t i = 0; i < chunks_ + delay_; ++i) {
      const std::int64_t finished = i - delay_;
      if (i < chunks_) stage(i);
      if (finished >= 0 && carries()) show_result(finished);
      if (inside_) inside_->arrive(nullptr, nullptr);
      if (i < chunks_ && carries()) add(i);
      if (finished >= 0) take_results(finished);
      if (inside_) inside_->rendezvous()->finish();
    }
    for (Transfer& result : results_) exchange_.wait(result);
    for (Transfer& out : out_) wait(out);
  }

 private:
  struct Chunk {
    std::byte* at;
    std::int64_t count;
  };
  Chunk chunk(int chain, std::int64_t k) const {
    const Segment part = segment_of(n_, chains_, chain);
    const Segment own = segment_of(part.size(), static_cast<int>(chunks_), static_cast<int>(k));
    return {data_ + static_cast<std::size_t>(part.begin + own.begin) * element_, own.size()};
  }
  std::size_t bytes(const Chunk& p) const { return static_cast<std::size_t>(p.count) * element_; }
  // The layout of a slot: a chunk for each carrier, then this carrier's results.
  std::size_t in_slot(int chain) const {
    return static_cast<std::size_t>(chain) * static_cast<std::size_t>(longest_) * element_;
  }
  std::byte* place(std::int64_t k) const {
    return staging_ +
           (static_cast<std::size_t>(k) % places) * static_cast<std::size_t>(longest_) * wide_;
  }
  bool carries() const { return self_ < chains_; }
  Transfer& out(std::int64_t k) { return out_[static_cast<std::size_t>(k) % places]; }
  void wait(Transfer& transfer) {
    if (transfer.request == nullptr) return;
    exchange_.wait(transfer);
    transfer = {};
  }

  // The chunks are the same on all members, because they follow from sizes that all members share.
  void set_chunks(std::size_t slot_bytes) {
    const auto members = static_cast<std::int64_t>(exchange_.size());
    const std::size_t staged = static_cast<std::size_t>(n_ / members * (members - 1)) * element_;
    const std::size_t space = std::min(
        slot_bytes / static_cast<std::size_t>(chains_ + 1) / element_, staged / places / wide_);
    const std::int64_t part = (n_ + chains_ - 1) / chains_;
    const std::int64_t longest = static_cast<std::int64_t>(space) / 64 * 64;
    const std::int64_t few =
        std::min(fewest_chunks, part * static_cast<std::int64_t>(element_) / smallest_chunk_bytes);
    chunks_ = std::max({std::int64_t{1}, few, (part + longest - 1) / longest});
    longest_ = longest;
  }

  void expect(std::int64_t k) {
    if (!before_ || k >= chunks_) return;
    in_.push_back(exchange_.receive(*before_, place(k),
                                    static_cast<std::size_t>(chunk(self_, k).count) * wide_));
  }

  void stage(std::int64_t k) {
    if (!inside_) return;
    std::byte* const slot = inside_->rendezvous()->slot();
    for (int chain = 0; chain < chains_; ++chain) {
      if (chain == self_) continue;
      const Chunk p = chunk(chain, k);
      std::memcpy(slot + in_slot(chain), p.at, bytes(p));
    }
  }

  void add(std::int64_t k) {
    const Chunk own = chunk(self_, k);
    if (before_) {
      exchange_.wait(in_.front());
      in_.pop_front();
    }
    std::vector<const void*> sources;
    for (int r = 0; r < run_; ++r) {
      sources.push_back(r == self_ ? own.at : inside_->input(r) + in_slot(self_));
    }
    reduce_on(place(k), !before_, sources, own.count, d_.dtype, d_.reduce_op);
    if (after_) {
      back_.push_back(exchange_.receive(*after_, own.at, bytes(own)));
      out(k) = exchange_.forward(*after_, place(k), static_cast<std::size_t>(own.count) * wide_);
    } else {
      reduce_end(own.at, place(k), own.count, d_.dtype, d_.reduce_op, exchange_.size());
      send_back(own);
    }
    // The chunk received next takes the buffer of the chunk before this one, which must have been
    // sent.
    const auto ahead = static_cast<std::int64_t>(places) - 1;
    if (k > 0) wait(out(k - 1));
    expect(k + ahead);
  }

  void send_back(const Chunk& result) {
    if (!before_) return;
    results_.push_back(exchange_.forward(*before_, result.at, bytes(result)));
    if (results_.size() > results_under_way) {
      exchange_.wait(results_.front());
      results_.pop_front();
    }
  }

  void show_result(std::int64_t k) {
    const Chunk own = chunk(self_, k);
    if (after_) {
      exchange_.wait(back_.front());
      back_.pop_front();
      send_back(own);
    }
    if (inside_) std::memcpy(inside_->rendezvous()->slot() + in_slot(chains_), own.at, bytes(own));
  }

  void take_results(std::int64_t k) {
    for (int chain = 0; inside_ && chain < chains_; ++chain) {
      if (chain == self_) continue;
      const Chunk p = chunk(chain, k);
      std::memcpy(p.at, inside_->input(chain) + in_slot(chains_), bytes(p));
    }
  }

  Exchange& exchange_;
  const Descriptor& d_;
  std::byte* data_;
  std::int64_t n_;
  std::byte* staging_;
  int begin_, run_, self_;  // of this host's run; this member's place in it
  std::size_t element_, wide_;
  std::int64_t delay_;
  int chains_ = 1;
  std::int64_t chunks_ = 1, longest_ = 0;  // chunks of a part; elements of a chunk, at most
  std::optional<int> before_, after_;      // the chain's carriers on the neighbouring hosts
  std::optional<Exchange> inside_;         // this host's members
  std::deque<Transfer> in_, back_, results_;
  std::array<Transfer, places> out_;
};

}  // namespace

void all_reduce(Exchange& exchange, const Buffers& buffers) {
  HostRuns& runs = *exchange.host_runs();
  exchange.compare();
  const std::size_t slot_bytes = agreed_slot_bytes(exchange, runs);
  if (slot_bytes == 0) return direct::all_reduce(exchange, buffers);
  exchange.count_sent(static_cast<std::size_t>(
      bytes_sent(exchange.descriptor(), exchange.size(), exchange.rank())));
  Carrying(exchange, runs, buffers, slot_bytes).run();
}

}  // namespace trident::carried
