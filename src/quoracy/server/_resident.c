/* give_back(): pages of memory that only starting needed go back to the system.
 *
 * To start, a server runs much code once: importing modules, making classes, opening a database.  The
 * pages of programs and libraries which that code lies in count as resident until something else needs
 * the memory, and so does what malloc has free.  Both are given back here.  A page of code that is
 * used again is found where it was, in the system's cache of files.
 *
 * What makes it safe
 *     * Only segments of programs and libraries that were linked as read-only are touched: the loader has
 *       no business writing to them.  What it did write to (relocations, also those that were made read-only
 *       afterwards) lies in segments that were linked as writable.
 *     * Of these only pages which the system says are those of the file, unchanged.  A debugger's
 *       breakpoints, say, are in copies, and those stay.
 *     * The loader's lock is held meanwhile: none of it is unmapped, or mapped anew, under our hands.
 *     * Other threads may run in the very pages; they find them again as anybody does.
 *
 * Linux only.  Elsewhere, and where /proc/self/pagemap cannot be read, no page of code is given back.
 */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(__linux__)

#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bits of an entry of /proc/self/pagemap: Documentation/admin-guide/mm/pagemap.rst of Linux. */
#define PRESENT (UINT64_C(1) << 63)
#define SWAPPED (UINT64_C(1) << 62)
#define OF_FILE (UINT64_C(1) << 61)

enum { ENTRIES = 512 }; /* that are read at once: 2 MiB of a segment */

struct giving {
    int pagemap;
    uintptr_t page; /* bytes of one */
    size_t given;   /* bytes */
};

/* Whether the page is the file's own.  One that is not there may be a copy in the swap space. */
static int is_unchanged(uint64_t entry)
{
    return (entry & PRESENT) && (entry & OF_FILE) && !(entry & SWAPPED);
}

static void give_back_range(struct giving *giving, uintptr_t start, uintptr_t end)
{
    uint64_t entries[ENTRIES];
    while (start < end) {
        size_t wanted = (end - start) / giving->page;
        if (wanted > ENTRIES)
            wanted = ENTRIES;
        ssize_t bytes = pread(giving->pagemap, entries, wanted * sizeof *entries,
                              (off_t)(start / giving->page * sizeof *entries));
        if (bytes < (ssize_t)sizeof *entries)
            return;
        size_t count = (size_t)bytes / sizeof *entries;
        for (size_t first = 0, next; first < count; first = next) {
            next = first + 1;
            if (!is_unchanged(entries[first]))
                continue;
            while (next < count && is_unchanged(entries[next]))
                next++;
            size_t length = (next - first) * giving->page;
            if (madvise((void *)(start + first * giving->page), length, MADV_DONTNEED) == 0)
                giving->given += length;
        }
        start += count * giving->page;
    }
}

static int writes_to_code(const struct dl_phdr_info *object)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (const void *)(object->dlpi_addr + header->p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++)
            if (entry->d_tag == DT_TEXTREL ||
                (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL)))
                return 1;
    }
    return 0;
}

static uintptr_t page_start(const struct giving *giving, uintptr_t address)
{
    return address & ~(giving->page - 1);
}

static uintptr_t page_end(const struct giving *giving, uintptr_t address)
{
    return page_start(giving, address + giving->page - 1);
}

static int give_back_object(struct dl_phdr_info *object, size_t Py_UNUSED(size), void *argument)
{
    struct giving *giving = argument;
    uintptr_t of_kernel = (uintptr_t)getauxval(AT_SYSINFO_EHDR); /* the vdso, which is no file */
    if (writes_to_code(object))
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || (header->p_flags & PF_W))
            continue;
        uintptr_t start = object->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
        if (of_kernel >= start && of_kernel < end)
            continue;
        start = page_start(giving, start);
        end = page_end(giving, end);
        /* A page that a writable segment has a part of is that one's. */
        for (int j = 0; j < object->dlpi_phnum; j++) {
            const ElfW(Phdr) *other = &object->dlpi_phdr[j];
            if (other->p_type != PT_LOAD || !(other->p_flags & PF_W))
                continue;
            uintptr_t taken = page_start(giving, object->dlpi_addr + other->p_vaddr);
            uintptr_t free = page_end(giving, object->dlpi_addr + other->p_vaddr + other->p_memsz);
            if (taken <= start && start < free)
                start = free;
            if (start < taken && taken < end)
                end = taken;
        }
        if (start < end)
            give_back_range(giving, start, end);
    }
    return 0;
}

static size_t give_back_code(void)
{
    struct giving giving = {.page = (uintptr_t)sysconf(_SC_PAGESIZE)};
    giving.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (giving.pagemap < 0)
        return 0;
    dl_iterate_phdr(give_back_object, &giving);
    close(giving.pagemap);
    return giving.given;
}

static size_t give_back_all(void)
{
    size_t given = give_back_code();
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
    return given;
}

#else

static size_t give_back_all(void)
{
    return 0;
}

#endif

static PyObject *give_back(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    size_t given;
    Py_BEGIN_ALLOW_THREADS
    given = give_back_all();
    Py_END_ALLOW_THREADS
    return PyLong_FromSize_t(given);
}

static PyMethodDef functions[] = {
    {"give_back", give_back, METH_NOARGS,
     "Give back pages of code, and what malloc has free; how many bytes of code these were."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_resident",
    .m_doc = "Giving memory back that only starting needed.",
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__resident(void)
{
    return PyModuleDef_Init(&module);
}
