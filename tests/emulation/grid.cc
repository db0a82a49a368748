// Blocks of threads as fibers of one host thread. The thread sanitizer sees each fiber as a thread,
// ordered only by barriers and the ends of blocks. It therefore reports a missing barrier in a
// kernel. It must not instrument this file itself, whose fibers take turns.
#include "tests/emulation/grid.h"

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(TRIDENT_EMULATION_SEES_RACES)
#include <sanitizer/tsan_interface.h>
#elif defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

namespace emulation {
namespace {

namespace context = boost::context::detail;

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t stack_bytes = 256 << 10;  // leaves room around each variable of its frames
#else
constexpr std::size_t stack_bytes = 64 << 10;
#endif
constexpr unsigned warp_size = 32;

// A stack as the sanitizers know it. They are notified before and after each switch to another
// stack.
#if defined(TRIDENT_EMULATION_SEES_RACES)
struct Strand {
  explicit Strand(std::byte*) : fiber(__tsan_create_fiber(0)) {}
  Strand() = default;
  void* fiber = nullptr;
};
void before_jump(Strand& from, Strand& to) {
  if (from.fiber == nullptr) from.fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.fiber, __tsan_switch_to_fiber_no_sync);
}
void after_jump(Strand&, Strand&) {}
void before_rendezvous(void* place) {
  __tsan_release(place);
}
void after_rendezvous(void* place) {
  __tsan_acquire(place);
}
#elif defined(__SANITIZE_ADDRESS__)
struct Strand {
  explicit Strand(std::byte* stack) : bottom(stack), bytes(stack_bytes) {}
  Strand() = default;
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* frames = nullptr;  // of the sanitizer
};
void before_jump(Strand& from, Strand& to) {
  __sanitizer_start_switch_fiber(&from.frames, to.bottom, to.bytes);
}
void after_jump(Strand& here, Strand& from) {
  __sanitizer_finish_switch_fiber(here.frames, &from.bottom, &from.bytes);
}
#else
struct Strand {
  explicit Strand(std::byte*) {}
  Strand() = default;
};
void before_jump(Strand&, Strand&) {}
void after_jump(Strand&, Strand&) {}
#endif
#if !defined(TRIDENT_EMULATION_SEES_RACES)
void before_rendezvous(void*) {}
void after_rendezvous(void*) {}
#endif

enum class State { ready, at_barrier, at_shuffle, done };

struct Fiber {
  context::fcontext_t context = nullptr;
  std::unique_ptr<std::byte[]> stack;
  State state = State::done;
  uint3 thread;
  unsigned index = 0;
  unsigned shuffles = 0;  // in this block so far; even and odd ones use different slots
  Strand strand;
};

struct Warp {
  std::uint64_t slots[2][warp_size];
  unsigned arrived = 0;
};

class Engine {
 public:
  void run(dim3 blocks, dim3 threads, std::size_t shared_bytes, const std::function<void()>& body) {
    shared_ = std::make_unique_for_overwrite<std::byte[]>(shared_bytes);
    shared_bytes_ = shared_bytes;
    scheduler_strand_ = Strand();
    body_ = &body;
    count_ = threads.x * threads.y * threads.z;
    while (fibers_.size() < count_) add_fiber();
    warps_.resize((count_ + warp_size - 1) / warp_size);
    blockDim = threads;
    gridDim = blocks;
    for (unsigned z = 0; z < blocks.z; ++z) {
      for (unsigned y = 0; y < blocks.y; ++y) {
        for (unsigned x = 0; x < blocks.x; ++x) {
          blockIdx = {x, y, z};
          run_block(threads);
        }
      }
    }
  }

  void synchronize_block() {
    ++at_barrier_;
    before_rendezvous(&at_barrier_);
    leave(State::at_barrier);
    after_rendezvous(&at_barrier_);
  }

  std::uint64_t exchange(unsigned mask, std::uint64_t value, int source) {
    Fiber& fiber = *current_;
    Warp& warp = warps_[fiber.index / warp_size];
    std::uint64_t* const slots = warp.slots[fiber.shuffles++ % 2];
    slots[fiber.index % warp_size] = value;
    if (++warp.arrived == static_cast<unsigned>(__builtin_popcount(mask))) {
      warp.arrived = 0;
      const unsigned first = fiber.index / warp_size * warp_size;
      for (unsigned i = first; i < std::min(first + warp_size, count_); ++i) {
        if (fibers_[i]->state == State::at_shuffle) fibers_[i]->state = State::ready;
      }
    } else {
      leave(State::at_shuffle);
    }
    return slots[source];
  }

  void* dynamic_shared() { return shared_.get(); }
  int lane() const { return static_cast<int>(current_->index % warp_size); }

 private:
  static void main(context::transfer_t from) {
    auto& engine = *static_cast<Engine*>(from.data);
    after_jump(engine.current_->strand, engine.scheduler_strand_);
    engine.scheduler_ = from.fctx;
    for (;;) {
      after_rendezvous(&engine.begun_);
      (*engine.body_)();
      before_rendezvous(&engine.ended_);
      engine.leave(State::done);
    }
  }

  void add_fiber() {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    fiber->context =
        context::make_fcontext(fiber->stack.get() + stack_bytes, stack_bytes, &Engine::main);
    fiber->index = static_cast<unsigned>(fibers_.size());
    fiber->strand = Strand(fiber->stack.get());
    fibers_.push_back(std::move(fiber));
  }

  // Switches from a fiber back to the scheduler, and returns when this fiber's turn comes again.
  void leave(State state) {
    Strand& own = current_->strand;
    current_->state = state;
    before_jump(own, scheduler_strand_);
    scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx;
    after_jump(own, scheduler_strand_);
  }

  void enter(Fiber& fiber) {
    current_ = &fiber;
    threadIdx = fiber.thread;
    before_jump(scheduler_strand_, fiber.strand);
    fiber.context = context::jump_fcontext(fiber.context, this).fctx;
    after_jump(scheduler_strand_, fiber.strand);
  }

  void run_block(dim3 threads) {
    for (unsigned i = 0; i < count_; ++i) {
      Fiber& fiber = *fibers_[i];
      fiber.state = State::ready;
      fiber.shuffles = 0;
      fiber.thread = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
    }
    for (Warp& warp : warps_) warp.arrived = 0;
    at_barrier_ = 0;
    std::fill_n(shared_.get(), shared_bytes_, std::byte{0xff});  // NaNs, until the block writes
    before_rendezvous(&begun_);
    unsigned left = count_;
    // Runs the fibers forwards and backwards in turn, so that a missing barrier changes the result.
    for (bool forwards = true; left > 0; forwards = !forwards) {
      bool moved = false;
      for (unsigned n = 0; n < count_; ++n) {
        Fiber& fiber = *fibers_[forwards ? n : count_ - 1 - n];
        if (fiber.state != State::ready) continue;
        enter(fiber);
        moved = true;
        if (fiber.state == State::done) --left;
      }
      if (left > 0 && at_barrier_ == left) {
        for (unsigned i = 0; i < count_; ++i) {
          if (fibers_[i]->state == State::at_barrier) fibers_[i]->state = State::ready;
        }
        at_barrier_ = 0;
      } else if (!moved) {
        throw std::runtime_error(
            "a kernel stands still: some threads of a block wait at a barrier or shuffle that "
            "others don't reach");
      }
    }
    after_rendezvous(&ended_);
  }

  const std::function<void()>* body_ = nullptr;
  unsigned count_ = 0, at_barrier_ = 0;
  // The addresses at which a block's fibers synchronize. There are two, since the end of one fiber
  // must not be ordered before the begin of another.
  char begun_ = 0, ended_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::unique_ptr<std::byte[]> shared_;  // aligned to 16 bytes, as operator new does
  std::size_t shared_bytes_ = 0;
  Fiber* current_ = nullptr;
  context::fcontext_t scheduler_ = nullptr;
  Strand scheduler_strand_;
};

// Runs as many grids at a time as there are cores. Fibers are expensive, above all under the thread
// sanitizer, and there are many streams.
class Engines {
 public:
  std::unique_ptr<Engine> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return taken_ < most_; });
    ++taken_;
    if (free_.empty()) return std::make_unique<Engine>();
    auto engine = std::move(free_.back());
    free_.pop_back();
    return engine;
  }
  // Null means that the engine is stuck in a kernel.
  void give_back(std::unique_ptr<Engine> engine) {
    {
      const std::lock_guard lock(mutex_);
      --taken_;
      if (engine != nullptr) free_.push_back(std::move(engine));
    }
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned taken_ = 0, most_ = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::unique_ptr<Engine>> free_;
};
Engines engines;
thread_local Engine* running = nullptr;

}  // namespace

void run_grid(dim3 blocks, dim3 threads, std::size_t shared_bytes,
              const std::function<void()>& body) {
  auto engine = engines.take();
  running = engine.get();
  try {
    engine->run(blocks, threads, shared_bytes, body);
  } catch (...) {
    engines.give_back(nullptr);
    throw;
  }
  engines.give_back(std::move(engine));
}
void synchronize_block() {
  running->synchronize_block();
}
std::uint64_t exchange(unsigned mask, std::uint64_t value, int source) {
  return running->exchange(mask, value, source);
}
int lane() {
  return running->lane();
}
void* dynamic_shared() {
  return running->dynamic_shared();
}

}  // namespace emulation
