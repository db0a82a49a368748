#include "core/turns.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <exception>
#include <string>
#include <system_error>

#include "base/error.h"

// The sanitizers need a call at each change of stack.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace trident {
namespace {

constexpr std::size_t kStackBytes = std::size_t{8} << 20;  // as a thread's; pages come with use

struct Unwind {};

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// A stack below which a page can't be touched.
void* make_stack() {
  void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error("no memory for a stack: " + std::system_category().message(errno));
  }
  mprotect(memory, page_bytes(), PROT_NONE);
  return memory;
}

}  // namespace

struct Turns::Pair {
  enum class State : std::uint8_t { waiting, begun, ended };

  const std::function<void()>* second = nullptr;
  void* stack = nullptr;
  ucontext_t first_context{}, second_context{};
  State second_state = State::waiting;
  bool in_second = false, first_ended = false;
  std::exception_ptr first_error, second_error;
#if defined(__SANITIZE_ADDRESS__)
  void *first_fake = nullptr, *second_fake = nullptr;
  const void* first_bottom = nullptr;
  std::size_t first_size = 0;
#elif defined(__SANITIZE_THREAD__)
  void *first_fiber = nullptr, *second_fiber = nullptr;
#endif

  static void entry(unsigned high, unsigned low) {
    auto& pair = *reinterpret_cast<Pair*>(std::uintptr_t{high} << 32U | std::uintptr_t{low});
    pair.arrived_in_second();
    try {
      (*pair.second)();
    } catch (const Unwind&) {
    } catch (...) {
      pair.second_error = std::current_exception();
    }
    pair.second_state = State::ended;
    pair.to_first();
  }

  void begin_second(void* its_stack) {
    stack = its_stack;
    second_state = State::begun;
    getcontext(&second_context);
    second_context.uc_stack = {.ss_sp = stack, .ss_flags = 0, .ss_size = kStackBytes};
    second_context.uc_link = nullptr;
    const auto address = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&second_context, reinterpret_cast<void (*)()>(&Pair::entry), 2,
                static_cast<unsigned>(address >> 32U), static_cast<unsigned>(address));
#if defined(__SANITIZE_THREAD__)
    first_fiber = __tsan_get_current_fiber();
    second_fiber = __tsan_create_fiber(0);
#endif
  }

  void to_second() {
    in_second = true;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&first_fake, stack, kStackBytes);
#elif defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(second_fiber, 0);
#endif
    swapcontext(&first_context, &second_context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(first_fake, nullptr, nullptr);
#endif
  }

  void to_first() {
    in_second = false;
#if defined(__SANITIZE_ADDRESS__)
    // Null where this stack is left for ever.
    void** const kept = second_state == State::ended ? nullptr : &second_fake;
    __sanitizer_start_switch_fiber(kept, first_bottom, first_size);
#elif defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(first_fiber, 0);
#endif
    swapcontext(&second_context, &first_context);
    arrived_in_second();
  }

  void arrived_in_second() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(second_fake, &first_bottom, &first_size);
#endif
  }

  ~Pair() {
#if defined(__SANITIZE_THREAD__)
    if (second_fiber != nullptr) __tsan_destroy_fiber(second_fiber);
#endif
  }
};

Turns::Turns() = default;

Turns::~Turns() {
  if (stack_ != nullptr) munmap(stack_, kStackBytes);
}

void Turns::run(const std::function<void()>& first, const std::function<void()>& second) {
  pair_ = std::make_unique<Pair>();
  pair_->second = &second;
  try {
    first();
  } catch (const Unwind&) {
  } catch (...) {
    pair_->first_error = std::current_exception();
  }
  pair_->first_ended = true;
  while (pair_->second_state == Pair::State::begun) pair_->to_second();
  const bool begins = pair_->second_state == Pair::State::waiting;
  const std::exception_ptr error = pair_->first_error ? pair_->first_error : pair_->second_error;
  pair_.reset();
  if (error) std::rethrow_exception(error);
  if (begins) second();
}

void Turns::give_way() {
  if (!pair_) return;
  Pair& pair = *pair_;
  if (pair.in_second) {
    if (!pair.first_ended) pair.to_first();
    if (pair.first_error) throw Unwind();
    return;
  }
  if (pair.second_state == Pair::State::ended) return;
  if (pair.second_state == Pair::State::waiting) {
    if (stack_ == nullptr) stack_ = make_stack();
    pair.begin_second(stack_);
  }
  pair.to_second();
  if (pair.second_error) throw Unwind();
}

bool Turns::shares() const {
  if (!pair_) return false;
  return pair_->in_second ? !pair_->first_ended : pair_->second_state != Pair::State::ended;
}

}  // namespace trident
