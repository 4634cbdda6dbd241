-- A window of the steps of a job, in order: those of _limit places after the first _offset. Of a value the first 500
-- characters are given. Of the steps of a finished job, which are one value, only the window is decoded.
create or replace function stepwell.dashboard_steps(_id uuid, _offset integer default 0, _limit integer default 100)
returns json
language plpgsql stable security definer
as $$
declare
  _from integer := greatest(coalesce(_offset, 0), 0);
  _most integer := least(greatest(coalesce(_limit, 100), 1), 1000);
begin
  return coalesce(
    (
      select json_agg(
        json_build_object(
          'n', s.n, 'key', s.key, 'kind', s.kind, 'pending', s.pending, 'timed_out', s.timed_out, 'large', s.large,
          'value', left(s.value::text, 500), 'value_size', octet_length(s.value::text),
          'error', case
            when s.error ->> 'state' = 'cancelled' then concat_ws(': ', 'cancelled', left(s.error ->> 'message', 1000))
            when s.error is not null then concat_ws(': ', s.error ->> 'type', left(s.error ->> 'message', 1000))
          end,
          'saved_at', s.saved_at, 'seconds', s.seconds, 'until', nullif(nullif(s.until, 'infinity'), '-infinity'),
          'child_id', s.child_id, 'event', s.event, 'event_key', nullif(s.event_key, '')
        )
        order by s.n, s.key
      )
      from (
        (
          select s.n, s.key, s.kind, s.pending, s.timed_out, s.large, s.value, s.error, s.saved_at, s.seconds,
            s.until, s.child_id, s.event, s.event_key
          from stepwell.step s
          where s.job_id = _id
          order by s.n, s.key
          offset _from
          limit _most
        )
        union all
        select u.n, u.key, u.kind, u.pending, u.timed_out, u.large, u.value, u.error, u.saved_at, u.seconds,
          u.until, u.child_id, u.event, u.event_key
        from (
          select json_agg(e.step order by e.place) as steps
          from stepwell.history h
          cross join lateral json_array_elements(h.steps) with ordinality as e (step, place)
          where h.id = _id and h.expires_at > stepwell.now() and e.place > _from and e.place <= _from::bigint + _most
        ) h
        cross join lateral stepwell.unfold(h.steps) u
        where h.steps is not null
      ) s
      -- Events that were taken from another wait: no step of the function.
      where s.kind <> 'taken'
    ),
    '[]'
  );
end
$$;
