// Replaces the model in a directory by a complete new one.
//
// A set of files is config.json, model.safetensors or shards with their index, and the companions
// of the weights (set_companions). The new set is first written into a folder inside the directory.
// Once it is complete, its files are moved. config.json is removed first and moved last: a
// directory without it is not taken for a model. So if the process dies at any time, the directory
// holds the old set, the new set, or a set that can't be loaded; it never holds a loadable mixture.
// The next save into the directory, or finish_save(), completes an interrupted one. Files that
// belong to no set stay unchanged.
//
// A set that a run has saved has a file .trident-weights, which is moved and removed with the set.
// It lists the set's weights and its tokenizer's files by size and time. It doesn't apply to files
// that someone has copied over them later.
//
// These functions are not collective. Only one process may change a directory at a time. Functions
// that change it throw Error if a file operation fails.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace trident {

// The other files that transformers reads with weights. A new set removes the old
// generation_config.json and the companions that a run saved itself. It leaves other files of a
// tokenizer, because they may belong to a user.
inline constexpr std::array<const char*, 9> set_companions{"generation_config.json",
                                                           "tokenizer.json",
                                                           "tokenizer_config.json",
                                                           "special_tokens_map.json",
                                                           "added_tokens.json",
                                                           "vocab.json",
                                                           "merges.txt",
                                                           "tokenizer.model",
                                                           "chat_template.jinja"};

class NewWeights {
 public:
  // Creates `directory` and the folder in it. Completes an interrupted save there.
  explicit NewWeights(const std::string& directory);
  NewWeights(const NewWeights&) = delete;
  NewWeights& operator=(const NewWeights&) = delete;
  ~NewWeights();  // without commit(): removes the files written so far

  // The folder for the files of the set. config.json must be written last, when all others are
  // complete.
  const std::string& path() const { return path_; }
  // Records that the run has saved the set. Call it when weights and companions are written.
  void sign(const std::string& run_id) const;
  void commit();

 private:
  std::string directory_, path_;
};

// The companions of another tokenizer that would stay in `directory` after a set with files of
// these names is saved there. transformers then reads them with the new weights.
std::vector<std::string> companions_that_stay(const std::string& directory,
                                              const std::set<std::string>& names);
// The same as a note for people; "" if there are none.
std::string note_of_companions(const std::string& directory, const std::set<std::string>& names);

// Records that the run has saved the weights in `directory`, as they are now. No other process may
// write there meanwhile.
void sign_weights(const std::string& directory, const std::string& run_id);

// Completes an interrupted save: moves its set if that is complete, otherwise removes it. Also
// removes files that were being written (NAME.tmp-<process>-<number>). No other process may write
// to `directory` meanwhile.
void finish_save(const std::string& directory);

// The folder in which an interrupted save has left a complete set, for messages; "" if there is
// none.
std::string unfinished_save(const std::string& directory);

// The files of the old set that the new one doesn't replace. A user must remove them from
// `directory` before moving the rest of an unfinished save there by hand.
std::vector<std::string> left_of_old_set(const std::string& directory);

// The file that shows that `directory` holds weights: model.safetensors, an index, or a set that is
// being moved; "" if there is none.
std::string weights_in(const std::string& directory);

// Bytes that finish_save() will free: those of an incomplete set.
std::int64_t unfinished_bytes(const std::string& directory);

// weights_in(), or any other file in `directory` that a new set would replace or remove; "" if
// there is none.
std::string set_file_in(const std::string& directory);

// Throws RequestError if `directory` is, or lies in, the folder that a save creates and removes.
void check_no_save_folder(const std::string& directory);

// Throws RequestError if a new set can't be moved to `directory` because the name of one of its
// files belongs to a directory or another file that isn't regular, if `directory` is a run's
// checkpoint, and as check_no_save_folder() does.
void check_set_place(const std::string& directory);

// The id of the run that has saved the set in `directory`, or the set that is being moved there; ""
// if no run has saved it or it was changed since.
std::string run_of_weights(const std::string& directory);

}  // namespace trident
