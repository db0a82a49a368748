// Blocks of threads as fibers of one host thread.
#include "tests/emulation/grid.h"

#include <boost/context/detail/fcontext.hpp>
#include <memory>
#include <stdexcept>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

namespace emulation {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t stack_bytes = 64 << 10;
constexpr unsigned warp_size = 32;

enum class State { ready, at_barrier, at_shuffle, done };

struct Fiber {
  context::fcontext_t context = nullptr;
  std::unique_ptr<std::byte[]> stack;
  State state = State::done;
  uint3 thread;
  unsigned index = 0;
  unsigned shuffles = 0;  // so far in this block: even and odd ones use different slots
#if defined(__SANITIZE_THREAD__)
  void* sanitizer = nullptr;
#endif
};

struct Warp {
  std::uint64_t slots[2][warp_size];
  unsigned arrived = 0;
};

class Engine {
 public:
  void run(dim3 blocks, dim3 threads, const std::function<void()>& body) {
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
    leave(State::at_barrier);
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

  int lane() const { return static_cast<int>(current_->index % warp_size); }

 private:
  static void main(context::transfer_t from) {
    auto& engine = *static_cast<Engine*>(from.data);
    engine.scheduler_ = from.fctx;
    for (;;) {
      (*engine.body_)();
      engine.leave(State::done);
    }
  }

  void add_fiber() {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    fiber->context =
        context::make_fcontext(fiber->stack.get() + stack_bytes, stack_bytes, &Engine::main);
    fiber->index = static_cast<unsigned>(fibers_.size());
#if defined(__SANITIZE_THREAD__)
    fiber->sanitizer = __tsan_create_fiber(0);
#endif
    fibers_.push_back(std::move(fiber));
  }

  // From a fiber back to the scheduler; returns when it is this fiber's turn again.
  void leave(State state) {
    current_->state = state;
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(scheduler_fiber_, 0);
#endif
    scheduler_ = context::jump_fcontext(scheduler_, nullptr).fctx;
  }

  void enter(Fiber& fiber) {
    current_ = &fiber;
    threadIdx = fiber.thread;
#if defined(__SANITIZE_THREAD__)
    scheduler_fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.sanitizer, 0);
#endif
    fiber.context = context::jump_fcontext(fiber.context, this).fctx;
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
    unsigned left = count_;
    // Forwards and backwards in turn: what lacks a barrier comes out differently.
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
  }

  const std::function<void()>* body_ = nullptr;
  unsigned count_ = 0, at_barrier_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  Fiber* current_ = nullptr;
  context::fcontext_t scheduler_ = nullptr;
#if defined(__SANITIZE_THREAD__)
  void* scheduler_fiber_ = nullptr;
#endif
};

thread_local Engine engine;

}  // namespace

void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& body) {
  engine.run(blocks, threads, body);
}
void synchronize_block() {
  engine.synchronize_block();
}
std::uint64_t exchange(unsigned mask, std::uint64_t value, int source) {
  return engine.exchange(mask, value, source);
}
int lane() {
  return engine.lane();
}

}  // namespace emulation
