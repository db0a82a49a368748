// Brings the weights that ZeRO keeps on other data-parallel ranks to where they are used: those
// that an update has changed (stages 1 and 2), or those of a module for as long as a visit to it
// lasts (stage 3).
#pragma once

#include <cstdint>
#include <vector>

#include "core/context.h"
#include "parallel/zero/buckets.h"

namespace trident {

class WeightGathering {
 public:
  // Gathers at most `prefetch_elements` ahead of their use, beside the stream's work where
  // `overlap` is set. Binds parameters while their weights are gathered.
  WeightGathering(ParameterBuckets&, bool overlap, std::int64_t prefetch_elements);

  // The buckets of these parameters that are gathered before each use, ascending; empty but in
  // stage 3.
  std::vector<std::size_t> buckets_of(const std::vector<std::shared_ptr<Parameter>>&) const;

  // A visit: hold() makes the weights whole (the stream waits), release() frees them, unless
  // prefetch() has asked for them meanwhile. Every hold() is released. Collective over those
  // who share each bucket, in the same order on every rank.
  void hold(Context&, const std::vector<std::size_t>& buckets);
  void release(const std::vector<std::size_t>& buckets);
  // The next visit: what is there stays, what is not begins to arrive, within the limit.
  void prefetch(Context&, const std::vector<std::size_t>& buckets);
  // Drops what was asked for and is not held: it is not to be used any more.
  void forget(Context&);

  // After an update: what is held whole is whole again on every rank. Stages 1 to 3.
  void gather_updated(Context&);

 private:
  struct Visit {
    Tensor weights;  // whole, or on their way
    Work arriving;
    int holders = 0;
    bool wanted = false;  // by the next visit
  };
  void start(Context&, std::size_t bucket, Async async);

  ParameterBuckets& buckets_;
  bool overlap_;
  std::int64_t prefetch_elements_;
  std::vector<Visit> uses_;  // by bucket
};

}  // namespace trident
