/* The far side of remote.py: a program for another processor, run by QEMU, that calls functions of the native library
 * on the memory of the process that asked.
 *
 *     guest LIBRARY PID        requests on standard input, answers on standard output
 *
 * Pointers are the asking process's own. Where the library touches one, the page is fetched from /proc/PID/mem to the
 * same address here; what a call has changed is written back when it ends. So every function works, whatever its
 * arguments point to, and no list of their sizes is needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, AT_ONCE = 16, MAX_PAGES = 1 << 16, INTEGERS = 24, FLOATS = 4, TEXT = 64 };
enum { TO_INTEGER = 0, TO_DOUBLE = 1, TO_TEXT = 2 };

typedef struct {
    char name[TEXT];
    int64_t result, integers[INTEGERS];
    float floats[FLOATS];
} request;

typedef struct {
    int64_t integer;
    double real;
    int64_t has_text;
    char text[TEXT];
} answer;

static int memory; /* of the asking process */
/* Pages as they came, in a file: mapped from it, a page is there at once and whole, also for other threads. */
static int file;
static unsigned char *fetched[MAX_PAGES], *before;
static int count;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void stop(const char *why, const void *where) {
    fprintf(stderr, "guest: %s %p\n", why, where);
    _exit(1);
}

static int is_fetched(const unsigned char *page) {
    for (int i = count; i-- > 0;)
        if (fetched[i] == page) return 1;
    return 0;
}

/* The page of a fault, and those behind it that exist. */
static void fetch(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    unsigned char *page = (unsigned char *)((uintptr_t)info->si_addr / PAGE * PAGE);
    while (atomic_flag_test_and_set(&busy)) {
    }
    /* Another thread may have been first. */
    for (int i = 0; i < AT_ONCE && !is_fetched(page); i++, page += PAGE) {
        unsigned char *copy = before + (size_t)count * PAGE;
        if (count == MAX_PAGES) stop("too many pages are in use at", page);
        if (pread(memory, copy, PAGE, (off_t)(uintptr_t)page) != PAGE) {
            if (!i) stop("the asking process has no memory at", info->si_addr);
            break;
        }
        /* The place is taken first, unreadable, because QEMU maps files that may not replace anything in two steps. */
        if (mmap(page, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != page) {
            if (!i) stop("this process needs the address itself:", page);
            break;
        }
        if (mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, (off_t)count * PAGE) != page)
            stop("no page to be had at", page);
        fetched[count++] = page;
    }
    atomic_flag_clear(&busy);
}

/* Only bytes that changed: others may be in use by other threads of the asking process. */
static void write_back(unsigned char *page, const unsigned char *old) {
    if (!memcmp(page, old, PAGE)) return;
    for (int from = 0, to; from < PAGE; from = to) {
        to = from + 1;
        if (page[from] == old[from]) continue;
        while (to < PAGE && page[to] != old[to]) to++;
        if (pwrite(memory, page + from, (size_t)(to - from), (off_t)(uintptr_t)(page + from)) != to - from)
            stop("the asking process refuses writes at", page + from);
    }
}

static void give_back(void) {
    for (int i = 0; i < count; i++) {
        write_back(fetched[i], before + (size_t)i * PAGE);
        munmap(fetched[i], PAGE);
    }
    count = 0;
}

/* Every integer and pointer in order, then the floats: on both ARM and RISC-V they are passed apart, and what a
 * function does not take is left unread. */
#define TYPES8 int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t
#define VALUES8(a) (a)[0], (a)[1], (a)[2], (a)[3], (a)[4], (a)[5], (a)[6], (a)[7]
#define ARGUMENTS(q) \
    VALUES8((q)->integers), VALUES8((q)->integers + 8), VALUES8((q)->integers + 16), (q)->floats[0], (q)->floats[1], \
        (q)->floats[2], (q)->floats[3]
typedef int64_t (*integer_function)(TYPES8, TYPES8, TYPES8, float, float, float, float);
typedef double (*double_function)(TYPES8, TYPES8, TYPES8, float, float, float, float);

static answer call(void *function, const request *q) {
    answer a = {0};
    if (q->result == TO_DOUBLE)
        a.real = ((double_function)function)(ARGUMENTS(q));
    else
        a.integer = ((integer_function)function)(ARGUMENTS(q));
    if (q->result == TO_TEXT && a.integer) {
        a.has_text = 1;
        strncpy(a.text, (const char *)a.integer, TEXT - 1);
    }
    return a;
}

int main(int argc, char **argv) {
    char path[64];
    if (argc != 3) stop("usage: guest LIBRARY PID", NULL);
    snprintf(path, sizeof path, "/proc/%s/mem", argv[2]);
    memory = open(path, O_RDWR);
    file = memfd_create("pages", 0);
    if (file < 0 || ftruncate(file, (off_t)MAX_PAGES * PAGE)) stop("no memory for pages", NULL);
    before = mmap(NULL, (size_t)MAX_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void *library = dlopen(argv[1], RTLD_NOW);
    if (memory < 0 || before == MAP_FAILED) stop("cannot read the memory of the asking process", NULL);
    if (!library) return fprintf(stderr, "guest: %s\n", dlerror()), 1;
    /* Threads of the library fault too; each handles its own on its own stack. */
    struct sigaction action = {.sa_sigaction = fetch, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    request q;
    while (fread(&q, sizeof q, 1, stdin) == 1) {
        void *function = dlsym(library, q.name);
        if (!function) stop("the library has no such function:", q.name);
        answer a = call(function, &q);
        give_back();
        fwrite(&a, sizeof a, 1, stdout);
        fflush(stdout);
    }
    return 0;
}
