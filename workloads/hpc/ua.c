/* Like NAS UA: heat from a ball that moves, on a mesh of cubes that is refined around the ball and made anew at every step. What is
 * next to what is found by hashing; conjugate gradients go over a list of faces in no regular order.
 *
 *	ua LEVEL STEPS		the smallest cubes are 2^-LEVEL of a side
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COARSEST = 3, MOST = 1 << 19, SLOTS = 1 << 20, ROUNDS = 25 };

struct cube {
	int x, y, z, size;
};
struct face {
	int a, b;
	double area_by_distance;
};
struct mesh {
	struct cube *cubes;
	double *heat;
	int *slots, count;
};

static int side, faces_there;
static double ball[3];
static struct face *faces;

static unsigned hash(struct cube c)
{
	unsigned h = c.x * 73856093u ^ c.y * 19349663u ^ c.z * 83492791u ^ c.size * 2654435761u;
	return (h ^ h >> 15) % SLOTS;
}

/* The place of a cube, or -1; `slot` is where it is or would be. */
static int find(const struct mesh *mesh, struct cube c, unsigned *slot)
{
	for (unsigned at = hash(c);; at = (at + 1) % SLOTS) {
		int place = mesh->slots[at] - 1;
		*slot = at;
		if (place < 0)
			return -1;
		struct cube o = mesh->cubes[place];
		if (o.x == c.x && o.y == c.y && o.z == c.z && o.size == c.size)
			return place;
	}
}

/* The cube of the mesh that has this point of the smallest grid, or -1 outside. */
static int find_point(const struct mesh *mesh, int x, int y, int z, int least)
{
	unsigned slot;
	if (x < 0 || y < 0 || z < 0 || x >= side || y >= side || z >= side)
		return -1;
	for (int size = least; size <= side; size *= 2) {
		int place = find(mesh, (struct cube){ x / size * size, y / size * size, z / size * size, size }, &slot);
		if (place >= 0)
			return place;
	}
	return -1;
}

static void refine(struct mesh *mesh, const struct mesh *old, struct cube c)
{
	double half = c.size / 2.0;
	double dx = c.x + half - ball[0], dy = c.y + half - ball[1], dz = c.z + half - ball[2];
	double away = fabs(sqrt(dx * dx + dy * dy + dz * dz) - side * 0.12);
	if (c.size > 1 && (c.size > side >> COARSEST || away < c.size * 1.5)) {
		int h = c.size / 2;
		for (int part = 0; part < 8; part++)
			refine(mesh, old, (struct cube){ c.x + (part & 1) * h, c.y + (part >> 1 & 1) * h, c.z + (part >> 2) * h, h });
		return;
	}
	unsigned slot;
	if (mesh->count == MOST || find(mesh, c, &slot) >= 0)
		return;
	int before = old->count ? find_point(old, c.x, c.y, c.z, 1) : -1;
	mesh->heat[mesh->count] = before < 0 ? 0 : old->heat[before];
	mesh->cubes[mesh->count] = c;
	mesh->slots[slot] = ++mesh->count;
}

static void join(const struct mesh *mesh)
{
	faces_there = 0;
	for (int a = 0; a < mesh->count; a++) {
		struct cube c = mesh->cubes[a];
		for (int direction = 0; direction < 6; direction++) {
			int by = direction & 1 ? c.size : -1, axis = direction / 2;
			int b = find_point(mesh, c.x + by * (axis == 0), c.y + by * (axis == 1), c.z + by * (axis == 2), c.size);
			/* A face between equal cubes is found from both, one between unequal ones from the smaller. */
			if (b < 0 || (mesh->cubes[b].size == c.size && direction & 1) || faces_there == 3 * MOST)
				continue;
			double distance = (c.size + mesh->cubes[b].size) / 2.0;
			faces[faces_there++] = (struct face){ a, b, (double)c.size * c.size / distance };
		}
	}
}

/* to = (volume + flow) from. */
static void apply(const struct mesh *mesh, const double *from, double *to)
{
	for (int i = 0; i < mesh->count; i++)
		to[i] = from[i] * pow(mesh->cubes[i].size, 3);
	for (int f = 0; f < faces_there; f++) {
		double flow = 2 * faces[f].area_by_distance * (from[faces[f].a] - from[faces[f].b]);
		to[faces[f].a] += flow;
		to[faces[f].b] -= flow;
	}
}

static double product(const double *a, const double *b, int count)
{
	double sum = 0;
	for (int i = 0; i < count; i++)
		sum += a[i] * b[i];
	return sum;
}

static void solve(const struct mesh *mesh, double *r, double *p, double *q)
{
	int count = mesh->count;
	double *x = mesh->heat;
	apply(mesh, x, q);
	for (int i = 0; i < count; i++) {
		struct cube c = mesh->cubes[i];
		double dx = c.x - ball[0], dy = c.y - ball[1], dz = c.z - ball[2], volume = pow(c.size, 3);
		double source = dx * dx + dy * dy + dz * dz < side * side * 0.0144 ? 1 : 0;
		r[i] = (x[i] + source) * volume - q[i];
		p[i] = r[i];
	}
	double rho = product(r, r, count);
	for (int round = 0; round < ROUNDS && rho > 0; round++) {
		apply(mesh, p, q);
		double alpha = rho / product(p, q, count), before = rho;
		for (int i = 0; i < count; i++) {
			x[i] += alpha * p[i];
			r[i] -= alpha * q[i];
		}
		rho = product(r, r, count);
		for (int i = 0; i < count; i++)
			p[i] = r[i] + rho / before * p[i];
	}
}

static void *zeroed(size_t count, size_t size)
{
	void *found = calloc(count, size);
	if (!found)
		exit(1);
	return found;
}

static struct mesh empty(void)
{
	return (struct mesh){ zeroed(MOST, sizeof(struct cube)), zeroed(MOST, sizeof(double)), zeroed(SLOTS, sizeof(int)), 0 };
}

int main(int argc, char **argv)
{
	int level = argc > 1 ? atoi(argv[1]) : 6, steps = argc > 2 ? atoi(argv[2]) : 4;
	if (level < COARSEST || level > 10)
		return 1;
	side = 1 << level;
	struct mesh mesh = empty(), old = empty();
	double *r = zeroed(MOST, sizeof *r), *p = zeroed(MOST, sizeof *p), *q = zeroed(MOST, sizeof *q);
	faces = zeroed(3 * MOST, sizeof *faces);
	for (int step = 0; step < steps; step++) {
		struct mesh other = old;
		old = mesh;
		mesh = other;
		mesh.count = 0;
		for (int slot = 0; slot < SLOTS; slot++)
			mesh.slots[slot] = 0;
		for (int axis = 0; axis < 3; axis++)
			ball[axis] = side * (0.3 + 0.04 * step * (axis + 1) / 3);
		refine(&mesh, &old, (struct cube){ 0, 0, 0, side });
		join(&mesh);
		solve(&mesh, r, p, q);
		printf("%d %d %.9e\n", mesh.count, faces_there, product(mesh.heat, mesh.heat, mesh.count));
	}
	return 0;
}
