! Like NAS MG: V-cycles of a multigrid solver for Poisson's equation with stencils of 27 points, periodic in three dimensions.
!
!     mg LEVELS CYCLES          the finest grid has 2**LEVELS points in each direction
program mg
  implicit none
  type grid
    double precision, allocatable :: u(:, :, :), r(:, :, :)
  end type
  ! Weights of the middle, of neighbours in a plane, along an edge and at a corner.
  double precision, parameter :: residual_by(0:3) = [-8d0 / 3, 0d0, 1d0 / 6, 1d0 / 12]
  double precision, parameter :: smooth_by(0:3) = [-3d0 / 8, 1d0 / 32, -1d0 / 64, 0d0]
  type(grid), allocatable :: g(:)
  double precision, allocatable :: v(:, :, :)
  integer :: levels, cycles, level, cycle, n, i
  integer(8) :: state = 314159265_8

  levels = argument(1, 6)
  cycles = argument(2, 4)
  allocate (g(levels))
  do level = 1, levels
    n = 2**level
    allocate (g(level)%u(0:n + 1, 0:n + 1, 0:n + 1), g(level)%r(0:n + 1, 0:n + 1, 0:n + 1))
    g(level)%u = 0
  end do
  allocate (v(0:n + 1, 0:n + 1, 0:n + 1))
  v = 0
  do i = 1, 20
    v(place(), place(), place()) = merge(1d0, -1d0, i <= 10)
  end do
  call wrap(v, n)
  do cycle = 1, cycles
    g(levels)%r = v
    call subtract(g(levels)%u, g(levels)%r, n)
    do level = levels, 2, -1
      call restrict(g(level)%r, g(level - 1)%r, 2**(level - 1))
    end do
    g(1)%u = 0
    call smooth(g(1)%r, g(1)%u, 2)
    do level = 2, levels
      if (level < levels) g(level)%u = 0
      call interpolate(g(level - 1)%u, g(level)%u, 2**(level - 1))
      if (level == levels) g(level)%r = v
      call subtract(g(level)%u, g(level)%r, 2**level)
      call smooth(g(level)%r, g(level)%u, 2**level)
    end do
  end do
  g(levels)%r = v
  call subtract(g(levels)%u, g(levels)%r, n)
  print '(es22.13)', sqrt(sum(g(levels)%r(1:n, 1:n, 1:n)**2) / dble(n)**3)

contains

  integer function argument(place, default)
    integer, intent(in) :: place, default
    character(20) :: text
    argument = default
    if (command_argument_count() < place) return
    call get_command_argument(place, text)
    read (text, *) argument
  end function

  integer function place()
    state = iand(state * 1220703125_8, 2_8**46 - 1)
    place = 1 + int(dble(state) / 2d0**46 * n)
  end function

  subroutine wrap(a, n)
    integer, intent(in) :: n
    double precision, intent(inout) :: a(0:n + 1, 0:n + 1, 0:n + 1)
    a(0, :, :) = a(n, :, :)
    a(n + 1, :, :) = a(1, :, :)
    a(:, 0, :) = a(:, n, :)
    a(:, n + 1, :) = a(:, 1, :)
    a(:, :, 0) = a(:, :, n)
    a(:, :, n + 1) = a(:, :, 1)
  end subroutine

  ! r = r - A u.
  subroutine subtract(u, r, n)
    integer, intent(in) :: n
    double precision, intent(in) :: u(0:n + 1, 0:n + 1, 0:n + 1)
    double precision, intent(inout) :: r(0:n + 1, 0:n + 1, 0:n + 1)
    double precision :: edge(0:n + 1), corner(0:n + 1)
    integer :: i, j, k
    do k = 1, n
      do j = 1, n
        do i = 0, n + 1
          edge(i) = u(i, j - 1, k) + u(i, j + 1, k) + u(i, j, k - 1) + u(i, j, k + 1)
          corner(i) = u(i, j - 1, k - 1) + u(i, j + 1, k - 1) + u(i, j - 1, k + 1) + u(i, j + 1, k + 1)
        end do
        do i = 1, n
          r(i, j, k) = r(i, j, k) - residual_by(0) * u(i, j, k) - residual_by(2) * (corner(i) + edge(i - 1) + edge(i + 1)) &
                       - residual_by(3) * (corner(i - 1) + corner(i + 1))
        end do
      end do
    end do
    call wrap(r, n)
  end subroutine

  ! u = u + S r.
  subroutine smooth(r, u, n)
    integer, intent(in) :: n
    double precision, intent(in) :: r(0:n + 1, 0:n + 1, 0:n + 1)
    double precision, intent(inout) :: u(0:n + 1, 0:n + 1, 0:n + 1)
    double precision :: edge(0:n + 1), corner(0:n + 1)
    integer :: i, j, k
    do k = 1, n
      do j = 1, n
        do i = 0, n + 1
          edge(i) = r(i, j - 1, k) + r(i, j + 1, k) + r(i, j, k - 1) + r(i, j, k + 1)
          corner(i) = r(i, j - 1, k - 1) + r(i, j + 1, k - 1) + r(i, j - 1, k + 1) + r(i, j + 1, k + 1)
        end do
        do i = 1, n
          u(i, j, k) = u(i, j, k) + smooth_by(0) * r(i, j, k) + smooth_by(1) * (r(i - 1, j, k) + r(i + 1, j, k) + edge(i)) &
                       + smooth_by(2) * (corner(i) + edge(i - 1) + edge(i + 1))
        end do
      end do
    end do
    call wrap(u, n)
  end subroutine

  ! The coarse grid of n points in each direction from the fine one of twice as many: half weighting.
  subroutine restrict(fine, coarse, n)
    integer, intent(in) :: n
    double precision, intent(in) :: fine(0:2 * n + 1, 0:2 * n + 1, 0:2 * n + 1)
    double precision, intent(out) :: coarse(0:n + 1, 0:n + 1, 0:n + 1)
    integer :: i, j, k, x, y, z, away
    double precision :: near(0:3)
    do k = 1, n
      do j = 1, n
        do i = 1, n
          near = 0
          do z = -1, 1
            do y = -1, 1
              do x = -1, 1
                away = abs(x) + abs(y) + abs(z)
                near(away) = near(away) + fine(2 * i + x, 2 * j + y, 2 * k + z)
              end do
            end do
          end do
          coarse(i, j, k) = near(0) / 2 + near(1) / 4 + near(2) / 8 + near(3) / 16
        end do
      end do
    end do
    call wrap(coarse, n)
  end subroutine

  ! Adds the coarse grid of n points in each direction to the fine one, linearly between its points.
  subroutine interpolate(coarse, fine, n)
    integer, intent(in) :: n
    double precision, intent(in) :: coarse(0:n + 1, 0:n + 1, 0:n + 1)
    double precision, intent(inout) :: fine(0:2 * n + 1, 0:2 * n + 1, 0:2 * n + 1)
    integer :: i, j, k, x, y, z
    do k = 1, n
      do j = 1, n
        do i = 1, n
          do z = -1, 0
            do y = -1, 0
              do x = -1, 0
                fine(2 * i + x, 2 * j + y, 2 * k + z) = fine(2 * i + x, 2 * j + y, 2 * k + z) &
                  + sum(coarse(i + x:i, j + y:j, k + z:k)) / ((1 - x) * (1 - y) * (1 - z))
              end do
            end do
          end do
        end do
      end do
    end do
    call wrap(fine, 2 * n)
  end subroutine
end program
